"""The gauges of /metrics that are computed at each scrape."""

import os

from app.repository.catalog import Catalog
from app.repository.routing import Rollout
from app.repository.served import ServedModel
from app.run_dir import WORKER
from app.run_dir.notes import Notes
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.web import gauges
from app.web.page.error_log import ErrorLog
from app.web.page.observed import Observed
from app.web.page.ring import LineRing

GPU = {"number": 1, "name": "card", "memory_mib": 1000, "used_mib": 10}


def _observed(folder, *samples):
    ring, notes = LineRing(None, 2), Notes(folder)
    notes.add(WORKER)
    ring.append(samples)
    return Observed(ring, ErrorLog(None), notes, lambda: 0)


def test_memory_is_that_of_the_newest_sample_in_bytes(tmp_path):
    """The memory of the server and of each GPU has the unit that its name says."""
    older, newer = {"memory_mib": 1.0, "gpus": []}, {"memory_mib": 2.5, "gpus": [GPU]}
    found = gauges.current(Catalog(None), _observed(tmp_path, older, newer))
    assert found["basket_memory_bytes"] == {(): 2.5 * 1024 * 1024}
    assert found["basket_gpu_memory_bytes"] == {("1",): 1000 << 20}
    assert found["basket_gpu_memory_used_bytes"] == {("1",): 10 << 20}


def test_without_a_sample_there_is_no_memory(tmp_path):
    """In the first second, and under `flask run`, the series are missing."""
    found = gauges.current(Catalog(None), _observed(tmp_path))
    assert not any("memory" in name for name in found)


def test_the_limit_of_the_queue_counts_all_processes(tmp_path):
    """Each process that holds a model has a queue of its own."""
    for pid in (1, os.getppid()):
        (tmp_path / f"{WORKER}.{pid}").touch()
    config = ModelConfig(Settings(max_batch_size=8, max_enqueued_batches=4))
    catalog = Catalog(None)
    catalog.add(ServedModel("m", 7, "", {}, config, None, None))
    found = gauges.current(catalog, _observed(tmp_path))
    assert found["basket_queue_limit_rows"] == {("m", "7"): 96}
    assert found["basket_model_versions"] == {("m", "AVAILABLE"): 1}


def test_traffic_is_told_by_version_and_step(tmp_path):
    """Of a rollout, the step of the version that is to take over, too."""
    config = ModelConfig(Settings())
    catalog = Catalog(None)
    for version in (1, 2):
        catalog.add(ServedModel("m", version, "", {}, config, None, None))
    found = gauges.current(catalog, _observed(tmp_path))
    assert found["basket_traffic_share"] == {("m", "1"): 0, ("m", "2"): 1}
    assert found["basket_rollout_step"] == {}
    catalog.set_rollout("m", Rollout(1, 2, 10.0, 1, "key"))
    found = gauges.current(catalog, _observed(tmp_path))
    assert found["basket_traffic_share"] == {("m", "1"): 0.9, ("m", "2"): 0.1}
    assert found["basket_rollout_step"] == {("m", "2"): 2}
