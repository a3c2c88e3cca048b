"""A web worker's side, with model processes whose messages the test sends."""

import queue
import threading
import time
import weakref
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
from app.shared_model.channel import DIED
from testing.server import wait_until
from tests.support.jobs import answered, job, outputs
from tests.support.shared_model import TIMEOUT_S, ScriptedProcess, submit


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


def test_version_replaced_in_each_process_in_turn_is_the_new_one(two):
    """The catalog has the new version although one process served it all the time."""
    catalog, _, *processes = two
    for process in processes:
        process.publish_model()
    for process in processes:
        process.publish(2, {})
        process.publish(3, {"1": process.version("other")})
    with catalog.lease(Target()) as model:
        assert model.platform == "other"


def test_update_of_one_process_does_not_wait_for_jobs_of_another(two):
    """An update is applied while a job runs in another process's removed version."""
    catalog, loader, busy, other = two
    for process in (busy, other):
        process.publish_model()
    other.rows.add(9)
    with catalog.lease(Target()) as model:
        sent = submit(catalog, 1.0)
        busy.send_update(2, {})
        wait_until(lambda: len(model.runner.channels()) == 1, TIMEOUT_S)
        assert loader.wait(TIMEOUT_S)
        other.publish(2, {"1": other.version("other")})
        busy.reply(busy.receive_job())
        assert answered(sent) == [1.0]
    busy.expect_acknowledged(2)


def test_version_removed_from_one_process_is_served_by_another(two):
    """A second process may serve the version while its last lease at the first ends."""
    catalog, _, before, after = two
    before.publish_model()
    after.accept()
    after.publish(1, {})
    with catalog.lease(Target()):
        before.send_update(2, {})
        wait_until(lambda: catalog.unavailable_reason("m") != "", TIMEOUT_S)
        after.publish(2, {"1": after.version("echo")})
        assert catalog.unavailable_reason("m") == ""
    before.expect_acknowledged(2)
    sent = submit(catalog, 1.0)
    after.reply(after.receive_job())
    assert answered(sent) == [1.0]


@pytest.mark.parametrize("state", ["UNLOADING", "AVAILABLE"])
def test_old_version_is_let_go_before_garbage_is_collected(machine, monkeypatch, state):
    """The collection frees the modules of its service.py, which are a cycle."""
    machine.settings = replace(machine.settings, user_code=True)
    catalog, _, process = ScriptedProcess.followed(machine)
    found = []
    with catalog.lease(Target()) as model:
        reference = weakref.ref(model)
        del model
    monkeypatch.setattr("app.memory.collect", lambda: found.append(reference()))
    process.publish(2, {"1": {**process.version("other"), "state": state}})
    assert found == [None]
    process.die()


def test_malformed_update_is_logged_and_the_process_is_followed_anew(
    machine, followed, monkeypatch, caplog
):
    """A web worker disconnects after a malformed update, and connects again."""
    monkeypatch.setattr("app.shared_model.remote_loader._RETRY_S", 0)
    catalog, _, process = followed
    process.peer.send({"revision": 2, "models": {"m": {}}})
    again = ScriptedProcess(machine)
    again.publish_model()
    assert catalog.unavailable_reason("m") == ""
    assert process.peer.connection.receive() == []
    assert "an update of the model process can't be applied" in caplog.text
    again.die()


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


def test_thread_ends_with_its_connection(machine):
    """The thread that receives replies ends with the model process, jobs under way."""
    before = set(threading.enumerate())
    catalog, _, process = ScriptedProcess.followed(machine)
    threads = {each.name: each for each in set(threading.enumerate()) - before}
    submit(catalog, 1.0)
    process.die()
    threads["replies"].join(TIMEOUT_S)
    assert not threads["replies"].is_alive()


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


def test_close_fails_jobs_under_way_and_refuses_new_ones(followed):
    """After the close jobs get Stopping."""
    catalog, loader, process = followed
    sent = submit(catalog, 1.0)
    process.receive_job()
    with catalog.lease(Target()) as model:
        loader.close(0)
        with pytest.raises(Stopping):
            outputs(sent)
        with pytest.raises(Stopping):
            model.runner.submit(job(1.0))


def test_version_published_during_shutdown_is_no_error(machine, caplog):
    """A version that the closed catalog refuses is not logged as an error."""
    catalog, _, process = ScriptedProcess.followed(machine)
    catalog.close()
    versions = {number: process.version("echo") for number in ("1", "2")}
    process.publish(2, versions)
    process.die()
    wait_until(lambda: caplog.messages, TIMEOUT_S)
    assert caplog.messages == [DIED]


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


def test_reply_after_the_deadline_is_ignored(followed):
    """A job is canceled at its deadline, and later jobs are answered."""
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
    # No job is under way, so the removal of the version is acknowledged.
    process.publish(2, {})
