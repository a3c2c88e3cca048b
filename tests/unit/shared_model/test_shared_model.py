"""Web workers and a real model process, in one process."""

import errno
import itertools
import socket
import threading
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest

from app.engines.base import DEFAULT_SIGNATURE, TensorSpec
from app.errors import (
    Abandoned,
    BasketError,
    ModelFailed,
    SettingsError,
    Stopping,
    TooLarge,
)
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import State
from app.settings import Settings
from app.shared_model.json_values import from_json
from app.shared_model.published_catalog import CatalogState
from app.shared_model.remote_loader import RemoteLoader
from app.shared_model.row_count import RowCount
from testing.server import wait_until
from tests.support.engines import Blocks, Echo, Raises
from tests.support.jobs import Notes, answered, job, outputs
from tests.support.shared_model import (
    TIMEOUT_S,
    Peer,
    failing_threads,
    in_thread,
    submit,
)


@pytest.fixture(name="engine")
def _engine(machine):
    """The engine of model m, which runs batches unless it is held."""
    engine = machine.add("m", engine=Blocks())
    engine.unblock()
    return engine


@pytest.fixture(name="rows")
def _rows(machine, engine):
    """A model process, and a function that returns its number of rows."""
    machine.process()
    assert machine.loader.wait(TIMEOUT_S)
    with closing(Peer.subscribed(machine)) as watcher:
        yield watcher.rows.rows


def _version(catalog):
    with catalog.lease(Target()) as model:
        return model.version


def _no_batching(machine):
    machine.settings = Settings(model_dir=machine.models, batching=False)


def test_job_runs_in_the_model_process(machine):
    """A web worker's job runs in the engine of the model process."""
    engine = machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    one = submit(catalog, 1.0, 2.0)
    assert answered(one) == [1.0, 2.0]
    assert one.batch_rows == 2
    assert engine.seen()[-1] == [1.0, 2.0]
    assert one.enqueued_at <= one.started_at <= one.finished_at


class Whole(Echo):
    """Returns whole rows."""

    def __init__(self):
        super().__init__()
        signature = self.signatures[DEFAULT_SIGNATURE]
        outputs = (TensorSpec("output", np.dtype("float32"), (None,)),)
        self.signatures = {DEFAULT_SIGNATURE: replace(signature, outputs=outputs)}

    def run(self, batch, signature_name=DEFAULT_SIGNATURE):
        return {"output": batch["input"].copy()}


def test_large_job_is_answered(machine):
    """Its rows are more than the sockets' buffers hold."""
    machine.add("m", engine=Whole())
    machine.process()
    catalog, _ = machine.worker()
    one = job(1.0, 2.0, width=3 << 20)
    with catalog.lease(Target()) as model:
        model.runner.submit(one)
    assert outputs(one)["output"][:, -1].tolist() == [1.0, 2.0]


def test_rows_of_two_web_workers_share_a_batch(machine, engine):
    """Jobs that two web workers submit while the engine is busy run as one batch."""
    machine.process()
    workers = [machine.worker()[0] for _ in range(2)]
    engine.block()
    jobs = [submit(workers[0], 0.0)]
    engine.wait_until_started()
    jobs += [submit(worker, n) for n, worker in enumerate(workers, 1)]
    wait_until(lambda: machine.observer.waiting[-1] == 2, TIMEOUT_S)
    engine.unblock()
    assert [answered(each) for each in jobs] == [[0.0], [1.0], [2.0]]
    assert sorted(engine.seen()[-1]) == [1.0, 2.0]


def test_refused_jobs_differ_from_failed_jobs(machine):
    """A job that was never enqueued is marked as refused."""
    machine.add("m", engine=Raises(ValueError("poison")))
    machine.process()
    catalog, _ = machine.worker()
    refused = submit(catalog, *range(1000))
    with pytest.raises(TooLarge, match="in one request"):
        outputs(refused)
    assert refused.was_refused
    failed = submit(catalog, Raises.poison)
    with pytest.raises(ModelFailed):
        outputs(failed)
    assert not failed.was_refused


def test_hot_swap_waits_for_leases_in_web_workers(machine):
    """Version 2 serves while a web worker's lease keeps version 1 open."""
    old = machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    other, _ = machine.worker()
    with catalog.lease(Target()) as model:
        machine.add("m", 2)
        rescan = in_thread(lambda: machine.loader.rescan(TIMEOUT_S))
        for each in (other, catalog):
            wait_until(lambda: _version(each) == 2, TIMEOUT_S)  # noqa: B023
        late = job(5.0)
        model.runner.submit(late)
        assert answered(late) == [5.0]
        assert not old.closed
    assert rescan()
    assert old.closed
    wait_until(lambda: [each.version for each in catalog.status("m")] == [2], TIMEOUT_S)


def test_changed_limits_reach_web_workers(machine):
    """A job that was decoded before the reload is run after it."""
    old = machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    new = machine.engines["m", "1"] = Echo()
    (machine.models / "m" / "basket.toml").write_text("max_batch_size = 2\n")
    with catalog.lease(Target()) as before:
        assert machine.loader.rescan(TIMEOUT_S)
        with catalog.lease(Target()) as after:
            assert after.config.settings.max_batch_size == 2
        assert (old.closed, new.closed) == (1, 0)
        late = job(5.0)
        before.runner.submit(late)
        assert answered(late) == [5.0]
    assert [5.0] in new.seen()


def test_reload_is_finished_when_web_workers_have_acknowledged_it(machine):
    """Until then they may send jobs that were found for the old engine."""
    old = machine.add("m")
    machine.process()
    assert machine.loader.wait(TIMEOUT_S)
    machine.engines["m", "1"] = Echo()
    with closing(Peer.subscribed(machine)) as silent:
        (machine.models / "m" / "basket.toml").write_text("max_batch_size = 2\n")
        rescan = in_thread(lambda: machine.loader.rescan(TIMEOUT_S))
        max_batch_size = None
        while max_batch_size != 2:
            state = from_json(CatalogState, silent.receive().meta["catalog"])
            served = state.models["m"].versions[0].served
            max_batch_size = served.config.settings.max_batch_size
        assert not old.closed
    assert rescan()
    assert old.closed


def test_hot_swap_does_not_wait_for_a_dead_web_worker(machine):
    """A version is closed when the connection without acknowledgment has ended."""
    old = machine.add("m")
    machine.process()
    assert machine.loader.wait(TIMEOUT_S)
    with closing(Peer.subscribed(machine)):
        machine.add("m", 2)
        rescan = in_thread(lambda: machine.loader.rescan(TIMEOUT_S))
        wait_until(
            lambda: machine.catalog.status("m")[-1].state is State.UNLOADING, TIMEOUT_S
        )
        assert not old.closed
    assert rescan()
    assert old.closed


def test_web_worker_knows_failed_versions_labels_and_unloaded_models(machine):
    """A web worker loads and unloads models in the model process."""
    machine.add("m", toml="[labels]\nstable = 1\n")
    machine.add("broken", engine=ValueError("no such file"))
    machine.process()
    catalog, loader = machine.worker()
    assert answered(submit(catalog, 1.0, target=Target("m", label="stable"))) == [1.0]
    assert "ValueError" in catalog.unavailable_reason("broken")
    assert catalog.status("broken")[0].state is State.END
    loader.unload("m", TIMEOUT_S)
    assert catalog.unavailable_reason("m") == "is unloaded"
    loader.load("m", TIMEOUT_S)
    assert answered(submit(catalog, 4.0, target=Target("m"))) == [4.0]
    with pytest.raises(ModelFailed, match="failed to load 'broken'"):
        loader.load("broken", TIMEOUT_S)


def test_traffic_is_split_in_the_model_process(machine):
    """The call returns once all web workers have the split."""
    for version in (1, 2):
        machine.add("m", version, toml="[labels]\nstable = 1\nnew = 2\n")
    machine.process()
    catalog, loader = machine.worker()
    with closing(Peer.subscribed(machine)) as silent:
        setting = threading.Thread(
            target=loader.set_traffic, args=("m", {"stable": 1.0}, TIMEOUT_S)
        )
        setting.start()
        traffic = {}
        while traffic != {"stable": 1.0}:
            state = from_json(CatalogState, silent.receive().meta["catalog"])
            traffic = state.models["m"].model.routes.traffic
        setting.join(0.1)
        assert setting.is_alive()
    setting.join(TIMEOUT_S)
    assert catalog.routes("m")[0].traffic == {"stable": 1.0}
    assert _version(catalog) == 1


def test_removed_model_is_unknown_in_web_workers(machine):
    """A model whose folder is removed leaves the web worker's catalog."""
    machine.add("m")
    machine.add("n")
    machine.process()
    catalog, _ = machine.worker()
    (machine.models / "n").rename(machine.models / ".n")
    assert machine.loader.rescan(TIMEOUT_S)
    wait_until(lambda: catalog.names() == ["m"], TIMEOUT_S)


def test_connection_is_accepted_later_if_too_many_files_are_open(machine, caplog):
    """A web worker waits meanwhile."""

    class Listener(socket.socket):
        has_failed = False

        def accept(self):
            if self.has_failed:
                return super().accept()
            self.has_failed = True
            raise OSError(errno.EMFILE, "Too many open files")

    machine.add("m")
    machine.listener = Listener(fileno=machine.listener.detach())
    machine.process()
    catalog, _ = machine.worker()
    assert answered(submit(catalog, 1.0)) == [1.0]
    assert "Too many open files" in caplog.text


def test_job_without_a_thread_is_refused_and_its_rows_do_not_count(
    machine, monkeypatch
):
    """The job fails, and the next one is computed."""
    _no_batching(machine)
    machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    with failing_threads({"job"}, monkeypatch):
        refused = submit(catalog, 1.0)
        with pytest.raises(BasketError, match="internal error"):
            outputs(refused)
    assert refused.was_refused
    with closing(Peer.subscribed(machine)) as watcher:
        assert watcher.rows.rows() == 0
    assert answered(submit(catalog, 2.0)) == [2.0]


def test_threads_have_names(machine):
    """Each thread of a web worker and of a model process has a name of its own."""
    machine.add("m")
    before = set(threading.enumerate())
    machine.process()
    machine.worker()
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert names >= {"remote loader", "model process"}
    assert not [name for name in names if name.startswith("Thread-")]


def test_rows_of_a_disconnected_client_are_not_computed(machine, engine, rows):
    """Rows that their web worker has canceled never reach the engine."""
    catalog, _ = machine.worker()
    engine.block()
    first = submit(catalog, 0.0)
    engine.wait_until_started()
    canceled = submit(catalog, 1.0)
    wait_until(lambda: rows() == 2, TIMEOUT_S)
    canceled.abandon()
    with pytest.raises(Abandoned):
        outputs(canceled)
    # Refused at once, and sent behind the message that cancels the other one.
    with pytest.raises(TooLarge):
        outputs(submit(catalog, *range(1000)))
    engine.unblock()
    assert answered(first) == [0.0]
    assert answered(submit(catalog, 2.0)) == [2.0]
    assert [1.0] not in engine.seen()


@pytest.mark.parametrize("is_half", [False, True])
def test_rows_of_a_dead_web_worker_are_not_computed(machine, engine, rows, is_half):
    """The end of a connection cancels the jobs of its web worker."""
    catalog, _ = machine.worker()
    engine.block()
    first = submit(catalog, 0.0)
    engine.wait_until_started()
    with closing(Peer.connect(machine)) as dying:
        dying.submit(job(1.0))
        wait_until(lambda: rows() == 2, TIMEOUT_S)
        if is_half:
            dying.sock.sendall(b"BSK1")
    # A connection that is made later is read later.
    with closing(Peer.subscribed(machine)):
        pass
    engine.unblock()
    assert answered(first) == [0.0]
    assert answered(submit(catalog, 2.0)) == [2.0]
    assert [1.0] not in engine.seen()
    wait_until(lambda: rows() == 0, TIMEOUT_S)


def test_web_worker_that_reads_nothing_harms_no_other(machine):
    """It is disconnected after a timeout."""
    machine.add("m", engine=Whole())
    machine.process(send_timeout_s=0.1)
    catalog, _ = machine.worker()
    with closing(Peer.connect(machine)) as stuck, suppress(BrokenPipeError):
        for number in itertools.count():
            stuck.submit(job(1.0, width=3 << 20), number)
            assert answered(submit(catalog, float(number))) == [float(number)]
    assert number < 20
    assert answered(submit(catalog, 5.0)) == [5.0]


def test_without_batching_jobs_of_one_web_worker_run_concurrently(machine, engine):
    """A job that runs in `submit` does not block the connection."""
    _no_batching(machine)
    machine.process()
    catalog, _ = machine.worker()
    engine.block()
    jobs = [submit(catalog, value) for value in (1.0, 2.0)]
    with closing(Peer.subscribed(machine)) as watcher:
        wait_until(lambda: watcher.rows.rows() == 2, TIMEOUT_S)
    engine.unblock()
    assert [answered(each) for each in jobs] == [[1.0], [2.0]]


def test_model_process_hangs_after_the_request_timeout(machine, engine):
    """A batch that runs for longer than a request may is a hang."""
    machine.settings = Settings(
        model_dir=machine.models, max_batch_size=4, request_timeout_ms=1
    )
    process = machine.process()
    assert machine.loader.wait(TIMEOUT_S)
    engine.block()
    assert not process.hangs()
    machine.catalog.find("m", 1).runner.submit(job(1.0))
    engine.wait_until_started()
    wait_until(process.hangs, TIMEOUT_S)


def test_malformed_frames_harm_no_other_connection(machine):
    """Other bytes end their connection; an unknown message gets an error."""
    machine.add("m")
    machine.process()
    catalog, _ = machine.worker()
    with closing(Peer.connect(machine)) as http:
        http.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert http.is_at_end()
    with closing(Peer.connect(machine)) as peer:
        for meta in ({}, {"predict": 3}, {"predict": ["m", 9]}, {"load": ["m"]}):
            peer.send(meta)
            assert "error" in peer.receive().meta
    assert answered(submit(catalog, 1.0)) == [1.0]


def test_close_answers_jobs_that_still_wait(machine, engine):
    """The last replies are written before the process ends."""
    process = machine.process()
    catalog, _ = machine.worker()
    engine.block()
    submit(catalog, 1.0)
    engine.wait_until_started()
    waiting = submit(catalog, 2.0)
    process.close(0.3)
    with pytest.raises(Stopping):
        outputs(waiting)


def test_start_without_model_process_is_a_configuration_error(machine):
    """Only Gunicorn starts model processes."""
    loader = RemoteLoader(machine.settings, Catalog(None), lambda *_: Notes(), [])
    with pytest.raises(SettingsError, match="only Gunicorn"):
        loader.start()


def test_row_count_is_shared_through_its_file_descriptor():
    """The number can be read after the descriptor is closed."""
    mine = RowCount()
    theirs = RowCount(mine.fd)
    mine.add(5)
    assert theirs.rows() == 5
    mine.add(-3)
    assert theirs.rows() == 2
    mine.close()
    assert theirs.rows() == 2
