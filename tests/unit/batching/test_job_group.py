"""JobGroup: one answer to the jobs of a request whose rows have unlike shapes."""

import queue
import threading

import numpy as np
import pytest

from app.batching.job import JobGroup
from app.batching.job_queue import JobQueue
from app.batching.release import FixedTimeout
from app.batching.unbatched import Unbatched
from app.errors import Abandoned, Late, ModelFailed, QueueFull, Stopping
from tests.support.engines import Echo, Raises
from tests.support.jobs import answered, executor, job, outputs


def _join(parts):
    return {"output": np.concatenate([each["output"][:, :1] for each in parts])}


def _group(*parts, join=_join, **rest):
    """Return a group with a part for each row, of unlike widths, and its wake-ups."""
    woken = []
    group = JobGroup(
        [job(n, width=1 + place, **rest) for place, n in enumerate(parts)], join
    )
    group.wake = woken.append
    return group, woken


class _Queue:
    """A Runner whose jobs stay in a queue, or are answered by the test."""

    def __init__(self, max_rows=16):
        self.jobs = JobQueue(max_rows, FixedTimeout(0))
        self.submitted = []

    def submit(self, one):
        self.jobs.put(one)
        self.submitted.append(one)


def _answer(one, batch_rows=1, began_at=1.0, ended_at=2.0):
    one.started_at = began_at
    assert one.succeed({"output": one.inputs["input"]}, batch_rows, ended_at)
    one.wake([one])


def test_group_is_answered_once_when_all_parts_are():
    """The last part wakes the event loop, with the joined outputs in order."""
    group, woken = _group(7, 8, 9)
    group.submit(_Queue())
    for place in (2, 0):
        _answer(group.parts[place])
        assert not group.is_answered()
        assert woken == []
    _answer(group.parts[1])
    assert woken == [[group]]
    assert group.is_answered()
    assert group.result()["output"].tolist() == [[7], [8], [9]]


def test_parts_of_one_batch_wake_the_group_together():
    """A batch's parts are told in one call."""
    group, woken = _group(1, 2)
    for part in group.parts:
        assert part.succeed({"output": part.inputs["input"]}, 2, 2.0)
    group.parts[0].wake(group.parts)
    assert woken == [[group]]
    assert group.result()["output"].tolist() == [[1], [2]]


def test_times_and_rows_are_those_of_all_parts():
    """From the first part's arrival and start to the last one's end."""
    group, _ = _group(1, 2)
    first, second = group.parts
    assert group.rows == 2
    assert group.enqueued_at == min(first.enqueued_at, second.enqueued_at)
    assert group.queue_s() >= 0
    second.started_at = group.enqueued_at + 5.0
    assert group.queue_s() == pytest.approx(5.0)
    _answer(first, batch_rows=3, began_at=11.0, ended_at=12.0)
    _answer(second, batch_rows=1, began_at=10.0, ended_at=13.0)
    assert (group.started_at, group.finished_at) == (10.0, 13.0)
    assert group.batch_rows == 3


def test_parts_have_the_trace_and_the_reserve_of_the_group():
    """Both are handed over when the group is submitted."""
    group, _ = _group(1, 2)
    group.traceparent, group.reserve_s = "00-1-2-01", 0.25
    group.submit(_Queue())
    assert [part.traceparent for part in group.parts] == ["00-1-2-01"] * 2
    assert [part.reserve_s for part in group.parts] == [0.25] * 2


def test_part_that_fails_fails_the_group_and_drops_the_other_parts():
    """The first error is the group's; other parts' rows are not run."""
    group, woken = _group(1, 2, 3)
    runner = _Queue()
    group.submit(runner)
    _answer(group.parts[0])
    error = ModelFailed("the model failed")
    group.parts[1].was_refused = True
    group.parts[1].fail(error)
    group.parts[2].fail(ModelFailed("another one"))
    assert woken == [[group]]
    assert group.was_refused
    with pytest.raises(ModelFailed) as caught:
        group.result()
    assert caught.value is error
    with pytest.raises(Abandoned, match="another row of the same request failed"):
        group.parts[2].result()
    assert runner.jobs.take(lambda key: 4) == []


def test_refused_part_refuses_the_group_and_drops_those_that_wait():
    """Submit raises, as for a job, and does not wake the event loop."""
    group, woken = _group(1, 2, 3)
    runner = _Queue(max_rows=2)
    with pytest.raises(queue.Full) as caught:
        group.submit(runner)
    assert group.error is caught.value
    assert woken == []
    assert len(runner.submitted) == 2
    assert all(part.is_answered() for part in group.parts)


def test_part_that_fails_before_the_next_is_refused_is_the_answer():
    """The event loop was woken for the failure, so submit does not raise as well."""
    group, woken = _group(1, 2)

    class Refuses:
        def submit(self, one):
            if one is group.parts[1]:
                raise QueueFull("no room")
            one.fail(Stopping("the server is stopping"))

    group.submit(Refuses())
    assert woken == [[group]]
    with pytest.raises(Stopping):
        group.result()


def test_abandoned_group_s_rows_are_not_run():
    """All parts are abandoned, in a shared model process too."""
    canceled = []
    group, woken = _group(1, 2)
    runner = _Queue()
    group.submit(runner)
    for part in group.parts:
        part.on_abandoned = lambda part=part: canceled.append(part)
    group.abandon()
    assert canceled == group.parts
    assert runner.jobs.take(lambda key: 4) == []
    assert runner.jobs.qsize() == 0
    assert woken == [[group]]
    with pytest.raises(Abandoned, match="the client closed the connection"):
        group.result()


def test_late_group_fails_at_its_deadline():
    """A thread waits until the deadline; no later part is an answer."""
    group, _ = _group(1, 2, deadline=0.0)
    group.wake = None
    _answer(group.parts[0])
    with pytest.raises(Late, match="no answer was ready before"):
        outputs(group)
    assert not group.parts[1].succeed({}, 1, 1.0)


def test_thread_waits_for_all_parts():
    """Without a wake-up a thread blocks until the last part is answered."""
    group, _ = _group(1, 2)
    group.wake = None
    _answer(group.parts[0])
    timer = threading.Timer(0.02, _answer, [group.parts[1]])
    timer.start()
    assert answered(group) == [1, 2]
    timer.join()


@pytest.mark.parametrize("fails", [False, True])
def test_group_is_answered_by_a_runner_that_runs_in_submit(fails):
    """Its parts are answered one by one, within submit."""
    group, woken = _group(Raises.poison if fails else 5, 2)
    engine = Raises(ValueError("poison")) if fails else Echo()
    group.submit(Unbatched(executor(engine, 4), 16))
    assert woken == [[group]]
    if fails:
        assert isinstance(group.error, ModelFailed)
        assert len(engine.batches) == 1
    else:
        assert group.result()["output"].tolist() == [[5], [2]]


def test_outputs_that_can_not_be_joined_fail_the_group():
    """The thread that answers survives what `join` raises."""
    group, woken = _group(1, 2, join=lambda parts: 1 / 0)
    for part in group.parts:
        _answer(part)
    assert woken == [[group]]
    with pytest.raises(ZeroDivisionError):
        group.result()
