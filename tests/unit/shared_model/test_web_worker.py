"""A web worker's side, with model processes whose messages the test sends."""

import itertools
import queue
import socket
import threading
import time
import weakref
from contextlib import closing
from dataclasses import replace

import pytest

from app.errors import (
    Abandoned,
    BasketError,
    Late,
    ModelProcessGone,
    NotReady,
    Stopping,
)
from app.repository.routing import Target
from app.repository.served import State
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.shared_model.channel import DIED, Channel
from app.shared_model.remote_runner import RemoteRunner
from app.shared_model.row_count import RowCount
from testing.server import wait_until
from tests.support.jobs import answered, job, outcome, outputs
from tests.support.shared_model import (
    TIMEOUT_S,
    Machine,
    Peer,
    ScriptedProcess,
    failing_threads,
    submit,
)


@pytest.fixture(name="followed")
def _followed(machine):
    """A web worker's catalog and loader, and a model process with model m."""
    catalog, loader, process = ScriptedProcess.followed(machine)
    yield catalog, loader, process
    process.die()


@pytest.fixture(name="two")
def _two(machine):
    """Two model processes, and the catalog and loader of their web worker."""
    catalog, loader = machine.starting_worker(processes=2)
    processes = [ScriptedProcess(machine), ScriptedProcess(machine)]
    yield catalog, loader, *processes
    for process in processes:
        process.die()


def _version(**rest):
    return ScriptedProcess.version(**rest)


# What model processes serve.


def test_version_replaced_in_each_process_in_turn_is_the_new_one(two):
    """The catalog has the new version although one process served it all the time."""
    catalog, _, *processes = two
    for process in processes:
        process.publish_model()
    for process in processes:
        process.publish(2)
        process.publish(3, _version(platform="other"))
    with catalog.lease(Target()) as model:
        assert model.platform == "other"


def test_update_of_one_process_does_not_wait_for_requests_of_another(two):
    """Its update is applied while a request holds a version that a process removed."""
    catalog, loader, busy, other = two
    busy.publish_model()
    other.accept()
    other.publish(1)
    with catalog.lease(Target()):
        busy.send_update(2)
        wait_until(lambda: catalog.unavailable_reason("m") != "", TIMEOUT_S)
        assert loader.wait(TIMEOUT_S)
        other.publish(2, _version(number=2))
    busy.expect_acknowledged(2)


def test_call_is_sent_before_the_acknowledgment_that_ends_a_version(two):
    """A process that is told that it gets no more jobs of a version gets none."""
    catalog, _, leaving, other = two
    for process in (leaving, other):
        process.publish_model()
    other.rows.add(9)
    with catalog.lease(Target()):
        sent = submit(catalog, 1.0)
        leaving.send_update(2)
        call = leaving.receive_job()
        leaving.expect_acknowledged(2)
        later = submit(catalog, 2.0)
        other.reply(other.receive_job())
        assert answered(later) == [2.0]
        leaving.reply(call)
        assert answered(sent) == [1.0]


def test_version_removed_from_one_process_is_served_by_another(two):
    """A second process may serve the version while its last lease at the first ends."""
    catalog, _, before, after = two
    before.publish_model()
    after.accept()
    after.publish(1)
    with catalog.lease(Target()):
        before.send_update(2)
        wait_until(lambda: catalog.unavailable_reason("m") != "", TIMEOUT_S)
        after.publish(2, _version())
        assert catalog.unavailable_reason("m") == ""
    before.expect_acknowledged(2)
    sent = submit(catalog, 1.0)
    after.reply(after.receive_job())
    assert answered(sent) == [1.0]


def test_request_with_the_last_lease_may_still_send_its_job(followed):
    """The version is acknowledged as removed after that."""
    catalog, _, process = followed
    with catalog.lease(Target()) as model:
        process.send_update(2)
        wait_until(lambda: catalog.unavailable_reason("m") != "", TIMEOUT_S)
        late = job(1.0)
        model.runner.submit(late)
    call = process.receive_job()
    process.expect_acknowledged(2)
    process.reply(call)
    assert answered(late) == [1.0]
    refused = job(1.0)
    with pytest.raises(ModelProcessGone):
        model.runner.submit(refused)


@pytest.mark.parametrize("state", [State.UNLOADING, State.AVAILABLE])
def test_old_version_is_let_go_before_garbage_is_collected(machine, monkeypatch, state):
    """The collection frees the modules of its service.py, which are a cycle."""
    machine.settings = replace(machine.settings, user_code=True)
    catalog, _, process = ScriptedProcess.followed(machine)
    found = []
    with catalog.lease(Target()) as model:
        reference = weakref.ref(model)
        del model
    monkeypatch.setattr("app.memory.collect", lambda: found.append(reference()))
    process.publish(2, _version(platform="other", state=state))
    assert found == [None]
    process.die()


def test_version_that_could_not_be_opened_comes_back_with_its_old_values(
    followed, tmp_path, caplog
):
    """A basket.toml that is set back after a failure serves as before."""
    catalog, _, process = followed
    (tmp_path / "service.py").write_text("import no_such_module")
    broken = _version(service=tmp_path)
    for revision, version, state in (
        (2, broken, State.END),
        (3, broken, State.END),
        (4, _version(), State.AVAILABLE),
    ):
        process.publish(revision, version)
        assert [each.state for each in catalog.status("m")] == [state]
    assert caplog.text.count("no_such_module") == 1
    process.publish(5, broken)
    process.publish(6)
    process.publish(7, broken)
    # As it came anew, it was tried again.
    assert caplog.text.count("no_such_module") == 3


def test_versions_own_settings_are_over_the_servers(machine):
    """A web worker has settings that do not cross."""
    machine.settings = replace(machine.settings, request_timeout_ms=1234)
    catalog, _ = machine.starting_worker()
    process = ScriptedProcess(machine)
    process.accept()
    own = ModelConfig(Settings(max_batch_size=2, allowed_batch_sizes=(1, 2)))
    process.publish(1, _version(config=own))
    with catalog.lease(Target()) as model:
        settings = model.config.settings
    assert settings.request_timeout_ms == 1234
    assert (settings.max_batch_size, settings.allowed_batch_sizes) == (2, (1, 2))
    process.die()


def test_malformed_update_is_logged_and_the_process_is_followed_anew(
    machine, followed, caplog
):
    """A web worker disconnects after a malformed update, and connects again."""
    catalog, _, process = followed
    process.peer.send({"revision": 2, "catalog": {"models": {"m": {"odd": 1}}}})
    again = ScriptedProcess(machine)
    again.publish_model()
    assert catalog.unavailable_reason("m") == ""
    assert process.peer.is_at_end()
    assert "an update of the model process can't be applied" in caplog.text
    again.die()


# The death of a model process.


def test_death_of_the_model_process_fails_jobs_at_once(machine):
    """Jobs fail until a new model process is followed."""
    (machine.models / "m").mkdir()
    catalog, loader, first = ScriptedProcess.followed(machine)
    sent = submit(catalog, 1.0)
    first.receive_job()
    first.die()
    with pytest.raises(ModelProcessGone):
        outputs(sent)
    wait_until(lambda: catalog.unavailable_reason("m") == "is loading", TIMEOUT_S)
    with pytest.raises(NotReady, match="is loading"):
        submit(catalog, 1.0)
    second = ScriptedProcess(machine)
    second.publish_model()
    assert catalog.unavailable_reason("m") == ""
    sent = submit(catalog, 3.0)
    second.reply(second.receive_job())
    assert answered(sent) == [3.0]
    loader.close(0)
    second.die()


def test_half_a_reply_fails_its_job_as_the_process_dies(followed):
    """The part of a frame that was sent before a kill -9 is no reply."""
    catalog, _, process = followed
    sent = submit(catalog, 1.0)
    written = process.encoded_replies(process.receive_job())
    process.peer.sock.sendall(written[:-5])
    process.die()
    with pytest.raises(ModelProcessGone):
        outputs(sent)


def test_bytes_that_are_no_frame_end_the_connection(machine, followed):
    """The jobs fail, and the process is followed anew."""
    catalog, _, process = followed
    sent = submit(catalog, 1.0)
    process.peer.sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    with pytest.raises(ModelProcessGone):
        outputs(sent)
    again = ScriptedProcess(machine)
    again.publish_model()
    again.die()


def test_job_submitted_as_the_process_dies_gets_an_error(machine):
    """A job that is sent before the death is noticed fails like those under way."""
    catalog, _, process = ScriptedProcess.followed(machine)
    with catalog.lease(Target()) as model:

        def predict():
            one = job(1.0)
            model.runner.submit(one)
            outputs(one)

        process.die()
        for _ in range(20):
            with pytest.raises(ModelProcessGone):
                predict()


def test_threads_that_read_end_with_their_connection(machine):
    """As does the work of an event loop."""
    before = set(threading.enumerate())
    _, _, process = ScriptedProcess.followed(machine)
    readers = set(threading.enumerate()) - before
    process.die()
    for reader in readers:
        if reader.name == "replies":
            reader.join(TIMEOUT_S)
            assert not reader.is_alive()


def test_connection_is_retried_if_no_thread_can_be_started(machine, monkeypatch):
    """A web worker connects although the first thread fails to start."""
    machine.loop = None
    with failing_threads({"replies"}, monkeypatch):
        catalog, _ = machine.starting_worker()
        process = ScriptedProcess(machine)
        process.accept()
        assert process.peer.is_at_end()
        process.die()
        process.publish_model()
    sent = submit(catalog, 1.0)
    process.reply(process.receive_job())
    assert answered(sent) == [1.0]
    process.die()


# Replies.


def test_replies_may_come_in_any_order(followed):
    """Of two jobs the second is answered first, and each gets its own rows."""
    catalog, _, process = followed
    jobs = [submit(catalog, 1.0), submit(catalog, 2.0)]
    first, second = process.receive_job(), process.receive_job()
    process.reply(second)
    assert answered(jobs[1]) == [2.0]
    assert not jobs[0].is_answered()
    process.reply(first)
    assert answered(jobs[0]) == [1.0]


def test_replies_received_together_notify_once(followed):
    """Jobs whose replies come in one read are notified in one call."""
    catalog, _, process = followed
    notified = queue.Queue()
    jobs = []
    with catalog.lease(Target()) as model:
        for value in (1.0, 2.0):
            one = job(value)
            one.wake = notified.put
            model.runner.submit(one)
            jobs.append(one)
    process.reply(process.receive_job(), process.receive_job())
    assert notified.get(timeout=TIMEOUT_S) == jobs


def test_event_loop_that_is_attached_notifies(tmp_path, loop):
    """So `wake` is called on it, and need not wake it."""
    with closing(Machine(tmp_path)) as machine:
        catalog, loader, process = ScriptedProcess.followed(machine)
        loop.call(lambda: loader.attach(loop.loop))
        told = queue.Queue()

        def predict():
            with catalog.lease(Target()) as model:
                one = job(1.0)
                one.wake = lambda _: told.put(threading.current_thread())
                model.runner.submit(one)

        # The first reply may be read by the thread that read before.
        for _ in range(2):
            loop.call(predict)
            process.reply(process.receive_job())
            thread = told.get(timeout=TIMEOUT_S)
        assert thread is loop.thread
        process.die()


def test_reply_after_the_deadline_is_ignored(followed):
    """A job ends at its deadline without a reply, and later jobs are answered."""
    catalog, _, process = followed
    late = submit(catalog, 1.0, deadline=time.monotonic())
    with pytest.raises(Late):
        outputs(late)
    call = process.receive_job()
    assert process.peer.receive().meta == {"cancel": [call.meta["number"]]}
    process.reply(call)
    other = submit(catalog, 2.0)
    process.reply(process.receive_job())
    assert answered(other) == [2.0]


def test_malformed_reply_fails_its_job_only(followed, caplog):
    """The job gets an internal error, and the next job is answered."""
    catalog, _, process = followed
    failed = submit(catalog, 1.0)
    process.peer.send({"number": process.receive_job().meta["number"]})
    with pytest.raises(BasketError, match="internal error"):
        outputs(failed)
    assert "a reply of the model process is malformed" in caplog.text
    sent = submit(catalog, 2.0)
    process.reply(process.receive_job())
    assert answered(sent) == [2.0]
    process.publish(2)


def test_reply_to_no_call_is_ignored(followed):
    """Such as to one that was canceled."""
    catalog, _, process = followed
    process.peer.send({"number": 99, "batch_rows": 1, "times": [1.0, 2.0]})
    sent = submit(catalog, 2.0)
    process.reply(process.receive_job())
    assert answered(sent) == [2.0]


# Clients that have gone.


def test_client_disconnect_cancels_the_job_in_the_model_process(followed):
    """The job fails, and the model process gets a cancel message."""
    catalog, _, process = followed
    sent = submit(catalog, 1.0)
    number = process.receive_job().meta["number"]
    sent.abandon()
    with pytest.raises(Abandoned):
        outputs(sent)
    assert process.peer.receive().meta == {"cancel": [number]}


def test_job_that_failed_here_is_canceled_in_the_model_process(followed):
    """As another group of the same request failed, nobody waits for its rows."""
    catalog, _, process = followed
    sent = submit(catalog, 1.0)
    number = process.receive_job().meta["number"]
    sent.fail(Abandoned("another row of the same request failed"))
    assert process.peer.receive().meta == {"cancel": [number]}


# The choice of a model process.


def test_job_goes_to_the_process_with_the_fewest_rows(two):
    """A process that serves the version no more gets no job."""
    catalog, _, *processes = two
    for process in processes:
        process.publish_model()
    processes[0].rows.add(2)
    submit(catalog, 1.0)
    processes[1].receive_job()
    processes[1].rows.add(3)
    submit(catalog, 2.0)
    processes[0].receive_job()
    processes[0].publish(2)
    submit(catalog, 3.0)
    processes[1].receive_job()


@pytest.fixture(name="channels")
def _channels():
    """Channels to two model processes, and these; nothing follows them."""
    pairs = [socket.socketpair() for _ in range(2)]
    rows = [RowCount() for _ in range(2)]
    channels = [
        Channel(ours, each) for (ours, _), each in zip(pairs, rows, strict=True)
    ]
    yield channels, [Peer(theirs) for _, theirs in pairs], rows
    for sock in itertools.chain(*pairs):
        sock.close()


def test_dead_process_gets_no_job_while_another_one_lives(channels):
    """Its row count is frozen; if all are dead, a job fails with the death of one."""
    (dead, other), (_, living), (_, rows) = channels
    runner = RemoteRunner("m", 1)
    runner.set_channels(frozenset((dead, other)))
    rows.add(3)
    dead.close(ModelProcessGone("died"))
    runner.submit(job(1.0))
    assert living.receive().meta["predict"] == ["m", 1]
    other.close(ModelProcessGone("died"))
    failed = job(1.0)
    runner.submit(failed)
    assert isinstance(outcome(failed), ModelProcessGone)


def test_runner_of_dead_processes_is_idle(channels):
    """Whatever rows they had."""
    both, _, (rows, _) = channels
    runner = RemoteRunner("m", 1)
    runner.set_channels(frozenset(both))
    rows.add(1)
    assert not runner.is_idle()
    for channel in both:
        channel.close(ModelProcessGone("died"))
    assert runner.is_idle()


def test_runner_is_idle_while_no_process_has_rows(two):
    """Neither a job of this worker's, nor rows of others; a dead process has none."""
    catalog, _, *processes = two
    for process in processes:
        process.publish_model()
    with catalog.lease(Target()) as model:
        runner = model.runner
    assert runner.is_idle()
    processes[0].rows.add(1)
    assert not runner.is_idle()
    processes[0].rows.add(-1)
    one = job(1.0)
    runner.submit(one)
    assert not runner.is_idle()
    processes[0].rows.add(1)
    for process in processes:
        process.die()
    wait_until(runner.is_idle, TIMEOUT_S)
    assert isinstance(outcome(one), ModelProcessGone)


# The end of a web worker.


def test_close_fails_jobs_under_way_and_later_ones(followed):
    """After the close jobs get Stopping."""
    catalog, loader, process = followed
    sent = submit(catalog, 1.0)
    process.receive_job()
    with catalog.lease(Target()) as model:
        loader.close(0)
        later = job(1.0)
        model.runner.submit(later)
        for each in (sent, later):
            with pytest.raises(Stopping):
                outputs(each)


def test_close_waits_for_jobs_under_way(followed):
    """Within its time limit."""
    catalog, loader, process = followed
    sent = submit(catalog, 1.0)
    call = process.receive_job()
    closing = threading.Thread(target=loader.close, args=(TIMEOUT_S,))
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    process.reply(call)
    closing.join()
    assert answered(sent) == [1.0]


def test_version_published_during_shutdown_is_no_error(machine, caplog):
    """A version that the closed catalog refuses is not logged as an error."""
    catalog, _, process = ScriptedProcess.followed(machine)
    catalog.close()
    process.publish(2, _version(), _version(number=2))
    process.die()
    wait_until(lambda: caplog.messages, TIMEOUT_S)
    assert caplog.messages == [DIED]
