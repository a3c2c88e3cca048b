"""Hot swaps under load, quarantine, and the traffic split between two versions."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testing.clients import Client, in_parallel
from testing.memory import resident_mib
from testing.server import serving, simulated_models, wait_for_metric, wait_until
from tests.support.traffic import CLIENTS, Traffic

pytestmark = [
    pytest.mark.keras,
    # From TensorFlow and Keras.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# SWAPS=100 for the long run.
SWAPS = int(os.environ.get("SWAPS", "12"))
ROWS = 3
KEY = "swap"
# 8 MiB of weights, so that a version that is never freed shows in the memory.
NAMES, WIDTH = 2048, 1024


def _version(folder: Path, number: int, model: Any) -> Path:
    """Write a version whose answers are its number, and rename it when complete."""
    model.get_layer("number").set_weights([np.zeros((WIDTH, 1)), np.array([number])])
    hidden = folder / f".{number}"
    hidden.mkdir(parents=True)
    model.save(hidden / "model.keras")
    return hidden.rename(folder / str(number))


def _model() -> Any:
    # Not at the top: a run without these tests must not import TensorFlow.
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    row = keras.Input((1,))
    wide = keras.layers.Flatten()(keras.layers.Embedding(NAMES, WIDTH)(row))
    return keras.Model(row, keras.layers.Dense(1, name="number")(wide))


@pytest.mark.timeout(240 + 6 * SWAPS)
def test_hot_swaps_under_load_fail_no_request(tmp_path):
    """Version after version is loaded under 20 clients, and memory does not grow."""
    model, folder = _model(), tmp_path / "steps"
    _version(folder, 1, model)
    settings = {"model_dir": str(tmp_path), "admin_keys": KEY}
    held_mib = {}
    with serving(f"--threads={CLIENTS + 4}", **settings) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        (pid,) = server.workers()
        with Traffic(server.port, [[7]] * ROWS, server.headers) as traffic:
            for number in range(2, SWAPS + 2):
                new = _version(folder, number, model)
                loaded = server.request("POST", "/v2/repository/models/steps/load")
                assert loaded.status == 200, loaded.body
                held_mib[number - 1] = resident_mib(pid)
                for old in folder.iterdir():
                    if old != new:
                        _remove(old)
        log = server.log.read_text()
    assert traffic.failed == []
    assert all(numbers == (float(v),) * ROWS for v, numbers in traffic.answers)
    assert len(traffic.answers) > SWAPS / 2, log
    assert held_mib[SWAPS] <= 1.15 * held_mib[5], held_mib


def _remove(version: Path) -> None:
    for file in version.iterdir():
        file.unlink()
    version.rmdir()


def _new_version(folder: Path) -> None:
    """Copy version 1 of a simulated model to version 2."""
    (folder / "2").mkdir()
    simulation = folder / "1" / "simulated.json"
    (folder / "2" / "simulated.json").write_bytes(simulation.read_bytes())


def test_crash_during_load_quarantines_the_version(tmp_path):
    """After the second crash of a worker the previous version serves again."""
    models = simulated_models(
        tmp_path, till={"base_ms": 0, "input_shape": [1], "outputs": 1}
    )
    deadly = "tests.support.deadly:app"
    with serving("--threads=4", app=deadly, model_dir=models) as server:
        assert server.predict([[1]]).status == 200
        _new_version(tmp_path / "till")
        ended = "model till 2 is not served: ended its process 2 times"
        wait_until(lambda: ended in server.log.read_text(), 60)
        wait_until(lambda: server.request("GET", "/readyz").status == 200, 30)
        assert server.predict([[1]]).headers["X-Model-Version"] == "1"
        (problem,) = server.request("GET", "/readyz").json()["problems"]["till"]
        assert problem.startswith("version 2: ended its process 2 times")
        assert server.log.read_text().count(ended) == 1


def test_traffic_is_split_by_weight_and_each_client_gets_one_version(tmp_path):
    """A 90/10 split of 10,000 requests is accurate to 1 percentage point."""
    models = simulated_models(
        tmp_path, till={"base_ms": 0, "input_shape": [1], "outputs": 1}
    )
    _new_version(tmp_path / "till")
    (tmp_path / "till" / "basket.toml").write_text(
        "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 90\ncanary = 10\n"
    )
    sides: dict[str, set[str]] = {}
    anonymous: Counter[str] = Counter()

    def send_requests(place: int) -> None:
        with Client(server.port) as client:
            for number in range(500):
                client.send([[1]])
                anonymous[client.receive().headers["X-Model-Version"]] += 1
                if number % 10 == 0:
                    name = f"till-{place}-{number % 7}"
                    client.send([[1]], {"X-Client-Id": name})
                    version = client.receive().headers["X-Model-Version"]
                    sides.setdefault(name, set()).add(version)

    with serving("--workers=2", "--threads=12", model_dir=models) as server:
        # Two workers have loaded two versions each.
        wait_until(lambda: server.loaded() == 4, 60, server.log.read_text)
        in_parallel(send_requests, 20)
        wait_for_metric(server, "basket_requests_total", 11_000)
    assert anonymous.total() == 10_000
    assert anonymous["2"] / 10_000 == pytest.approx(0.1, abs=0.01)
    assert all(len(side) == 1 for side in sides.values())
    assert {"1", "2"} == set.union(*sides.values())
