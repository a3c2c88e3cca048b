"""Job: one answer, all rows in order, and correct times."""

import contextlib
import math
import queue
import threading
import time

import numpy as np
import pytest

from app.batching.fair_queue import JobSlice
from app.batching.job import Job, notify
from app.errors import Abandoned, BadInput, Late, ModelFailed, Stopping
from tests.support.engines import Echo
from tests.support.jobs import FakeTime, answered, executor, job, outputs


def _outputs(*values):
    return {"output": np.array(values, np.float32).reshape(-1, 1)}


def _add(one, *part):
    if one.add(*part):
        notify([one])


def test_result_returns_the_outputs():
    """The answer has the outputs that were added."""
    one = job(7)
    assert not one.is_answered()
    _add(one, 0, _outputs(7), 5, one.enqueued_at + 3.0)
    assert one.is_answered()
    assert one.result()["output"].tolist() == [[7]]
    assert one.batch_rows == 5


def test_result_raises_the_error_of_a_failed_job():
    """A failed job raises its own error in the waiting thread."""
    one = job(7)
    error = ModelFailed("the model failed")
    one.fail(error)
    with pytest.raises(ModelFailed) as caught:
        outputs(one)
    assert caught.value is error


def test_jobs_that_share_an_error_raise_it_with_their_own_traceback():
    """An error that two jobs share has in each only that job's own traceback."""
    error = ModelFailed("the model failed")
    depths = []
    for each in (job(1), job(2)):
        each.fail(error)
        with pytest.raises(ModelFailed) as caught:
            outputs(each)
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1]


@pytest.mark.parametrize(
    "after_s", [-60.0, -0.001, 0.02], ids=["long ago", "just now", "to come"]
)
def test_wait_without_an_answer_raises_late_at_the_deadline(after_s):
    """Without an answer wait blocks until the deadline; then none is accepted."""
    deadline = time.monotonic() + after_s
    one = job(7, deadline=deadline)
    with pytest.raises(Late):
        outputs(one)
    assert time.monotonic() >= deadline
    assert one.is_answered()
    assert not one.add(0, _outputs(7), 1, 0.0)


def test_wait_after_the_deadline_returns_an_answer_that_is_set():
    """An answer from before the deadline is returned after it."""
    one = job(7, deadline=time.monotonic() - 1)
    _add(one, 0, _outputs(7), 1, one.enqueued_at)
    assert answered(one) == [7]


def test_wait_after_the_deadline_waits_for_the_notification_of_an_answer():
    """A job that is claimed before its deadline waits until it is notified."""
    late = job(1, deadline=time.monotonic() - 1)
    assert late.claim.acquire(False)
    answers = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: answers.put(outputs(late)))
    thread.start()
    # It is late, and another thread is about to set the answer.
    thread.join(0.05)
    assert answers.empty()
    late.outputs = _outputs(7)
    notify([late])
    assert answers.get(timeout=10)["output"].tolist() == [[7]]
    thread.join()


def test_slices_are_joined_in_row_order():
    """Rows from several batches are joined by output, in the job's own order."""
    one = job(1, 2, 3, 4, 5)
    for values in ([3, 4], [1, 2], [5]):
        assert not one.is_answered()
        part = {"a": np.array(values), "b": -np.array(values)}
        _add(one, values[0] - 1, part, 2, 0.0)
    assert one.is_answered()
    assert one.result()["a"].tolist() == [1, 2, 3, 4, 5]
    assert one.result()["b"].tolist() == [-1, -2, -3, -4, -5]


def test_rows_whose_outputs_can_not_be_joined_are_the_job_s_own_error():
    """Outputs of unlike shapes are an answer, too."""
    one = job(1, 2)
    _add(one, 0, {"words": np.zeros((1, 3))}, 1, 0.0)
    _add(one, 1, {"words": np.zeros((1, 2))}, 1, 0.0)
    with pytest.raises(BadInput, match=r"such as \(2,\) and \(3,\)"):
        one.result()


def test_first_answer_stands():
    """Neither outputs nor another error replace the first answer."""
    failed, succeeded = job(7), job(8)
    failed.fail(ModelFailed("first"))
    _add(failed, 0, _outputs(7), 1, 0.0)
    _add(succeeded, 0, _outputs(8), 1, 0.0)
    for one in (failed, succeeded):
        one.fail(Stopping("second"))
    with pytest.raises(ModelFailed, match="first"):
        outputs(failed)
    assert answered(succeeded) == [8]


def test_threads_that_race_set_one_answer():
    """Of eight threads that answer at the same time exactly one succeeds."""
    # A second answer would release the waiter's lock again, and end its thread with
    # an error that fails the test.
    for _ in range(50):
        one, start = job(7), threading.Barrier(8)

        def answer(place, one=one, start=start):
            start.wait()
            if place == 0:
                _add(one, 0, _outputs(7), 1, 0.0)
            else:
                one.fail(ModelFailed(f"thread {place}"))

        threads = [threading.Thread(target=answer, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with contextlib.suppress(ModelFailed):
            assert answered(one) == [7]


def test_times_span_from_arrival_to_the_first_and_the_last_row():
    """Queue time ends with the first slice's start; the last one's end is the job's."""
    fake, one = FakeTime(), job(1, 2, 3, deadline=math.inf)
    one.enqueued_at = 999.5

    class Slow(Echo):
        def run(self, batch, signature_name):
            fake.now += len(batch["input"])
            return super().run(batch)

    runs = executor(Slow(), 4, clock=fake.clock)
    runs.execute([JobSlice(one, 0, 2)])
    assert not one.is_answered()
    fake.now += 10.0
    runs.execute([JobSlice(one, 2, 3)])
    assert one.is_answered()
    assert one.queue_s() == 0.5
    assert (one.started_at, one.finished_at) == (1000.0, 1013.0)
    assert one.batch_rows == 2


def test_queue_time_grows_until_the_job_runs():
    """The queue time of a job that has not run counts until now."""
    one = job(7)
    first = one.queue_s()
    one.enqueued_at -= 5.0
    assert one.queue_s() >= first + 5.0


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        pytest.param(job(1), job(2, 3), True, id="rows"),
        pytest.param(job(1), job(1, width=2), False, id="shape"),
        pytest.param(job(1), job(1, dtype=np.float64), False, id="dtype"),
        pytest.param(
            job(1), Job({"other": job(1).inputs["input"]}, 0.0), False, id="name"
        ),
    ],
)
def test_key_is_equal_for_rows_that_may_share_a_batch(first, second, equal):
    """Keys are equal when names, dtypes and row shapes are, whatever the rows."""
    assert (first.key == second.key) == equal


def _note_when_it_waits(one, waiting):
    """Release `waiting` once the job's thread has found no answer."""
    is_answered = one.is_answered

    def note():
        answered = is_answered()
        waiting.release()
        return answered

    one.is_answered = note


def test_all_threads_of_a_batch_are_notified():
    """No thread that waits returns before notify; then each has its own answer."""
    jobs = [job(value) for value in range(5)]
    waiting = threading.Semaphore(0)
    for one in jobs:
        _note_when_it_waits(one, waiting)
    answers = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda one=one: answers.put(*answered(one)))
        for one in jobs
    ]
    for thread in threads:
        thread.start()
    for _ in jobs:
        assert waiting.acquire(timeout=10)
    for value, one in enumerate(jobs):
        assert one.add(0, _outputs(value), 5, 0.0)
    assert answers.empty()
    notify(jobs)
    assert sorted(answers.get(timeout=10) for _ in jobs) == [0, 1, 2, 3, 4]
    for thread in threads:
        thread.join()


def test_event_loop_is_woken_once_for_a_failed_job():
    """An error wakes the event loop, and what comes after it does not."""
    woken = []
    one = job(7)
    one.wake = woken.append
    one.fail(ModelFailed("first"))
    one.fail(Stopping("second"))
    assert woken == [[one]]
    with pytest.raises(ModelFailed, match="first"):
        one.result()


def test_event_loops_are_woken_once_per_batch():
    """Each loop is woken once for all of its jobs, which are done, in their order."""
    woken = []

    def first(done):
        woken.append((first, done, [each.is_answered() for each in done]))

    def second(done):
        woken.append((second, done, [each.is_answered() for each in done]))

    jobs = [job(place) for place in range(6)]
    for place, wake in enumerate((first, first, second, None, second, None)):
        jobs[place].wake = wake
        assert jobs[place].add(0, _outputs(place), 6, 0.0)
    assert woken == []
    notify(jobs)
    assert woken == [(first, jobs[:2], [True] * 2), (second, jobs[2:5:2], [True] * 2)]
    assert [one.result()["output"].tolist() for one in jobs] == [
        [[n]] for n in range(6)
    ]


def test_abandoned_job_is_dropped_and_canceled_elsewhere():
    """Whoever runs the rows in another process learns of it at once."""
    one, canceled = job(7), []
    one.on_abandoned = lambda: canceled.append(one.is_answered())
    assert not one.drop_if_dead(0.0)
    one.abandon()
    assert canceled == [False]
    assert one.drop_if_dead(0.0)
    assert canceled == [False, True]
    with pytest.raises(Abandoned, match="the client closed the connection"):
        one.result()


def test_key_that_was_made_before_is_kept():
    """Requests of one shape need not make a key each."""
    first = job(1)
    second = Job(first.inputs, 0.0, key=first.key)
    assert second.key is first.key


def test_submit_hands_the_job_to_a_runner():
    """A job is submitted as a group of jobs is."""
    submitted = []

    class Runner:
        def submit(self, one):
            submitted.append(one)

    one = job(7)
    one.submit(Runner())
    assert submitted == [one]
