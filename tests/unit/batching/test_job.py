"""Job: one answer, all rows in order, and correct times."""

import contextlib
import queue
import threading
import time

import numpy as np
import pytest

from app.batching.job import Job, notify
from app.errors import Late, ModelFailed, Stopping
from tests.support.jobs import answered, job


def _outputs(*values):
    return {"output": np.array(values, np.float32).reshape(-1, 1)}


def _add(one, *part):
    if one.add(*part):
        notify([one])


def test_wait_returns_the_outputs():
    """The answer has the outputs that were added."""
    one = job(7)
    one.start(one.enqueued_at + 1.0)
    _add(one, 0, _outputs(7), 5, one.enqueued_at + 3.0)
    answer = one.wait()
    assert answer.outputs["output"].tolist() == [[7]]
    assert answer.batch_rows == 5


def test_wait_raises_the_error_of_a_failed_job():
    """A failed job raises its own error in the waiting thread."""
    one = job(7)
    error = ModelFailed("the model failed")
    one.fail(error)
    with pytest.raises(ModelFailed) as caught:
        one.wait()
    assert caught.value is error


def test_jobs_that_share_an_error_raise_it_with_their_own_traceback():
    """An error that two jobs share has in each only that job's own traceback."""
    error = ModelFailed("the model failed")
    depths = []
    for each in (job(1), job(2)):
        each.fail(error)
        with pytest.raises(ModelFailed) as caught:
            each.wait()
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
        one.wait()
    assert time.monotonic() >= deadline
    assert one.is_answered()
    assert not one.add(0, _outputs(7), 1, 0.0)


def test_wait_after_the_deadline_returns_an_answer_that_is_set():
    """An answer from before the deadline is returned after it."""
    one = job(7, deadline=time.monotonic() - 1)
    _add(one, 0, _outputs(7), 1, one.enqueued_at)
    assert answered(one) == [7]


def test_wait_after_the_deadline_waits_for_the_notification_of_an_answer():
    """A job whose answer is set before its deadline waits until it is notified."""
    late = job(1, deadline=time.monotonic() - 1)
    assert late.add(0, _outputs(7), 2, 0.0)
    answers = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: answers.put(late.wait()))
    thread.start()
    notify([late])
    assert answers.get(timeout=10).batch_rows == 2
    thread.join()


def test_slices_are_joined_in_row_order():
    """Rows from several batches are joined by output, in the job's own order."""
    one = job(1, 2, 3, 4, 5)
    for values in ([3, 4], [1, 2], [5]):
        assert not one.is_answered()
        outputs = {"a": np.array(values), "b": -np.array(values)}
        _add(one, values[0] - 1, outputs, 2, 0.0)
    assert one.is_answered()
    outputs = one.wait().outputs
    assert outputs["a"].tolist() == [1, 2, 3, 4, 5]
    assert outputs["b"].tolist() == [-1, -2, -3, -4, -5]


def test_first_answer_stands():
    """Neither outputs nor another error replace the first answer."""
    failed, succeeded = job(7), job(8)
    failed.fail(ModelFailed("first"))
    _add(failed, 0, _outputs(7), 1, 0.0)
    _add(succeeded, 0, _outputs(8), 1, 0.0)
    for one in (failed, succeeded):
        one.fail(Stopping("second"))
    with pytest.raises(ModelFailed, match="first"):
        failed.wait()
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
    """Queue time ends with the first slice's start, infer time with the last's end."""
    one = job(1, 2, 3)
    arrived_at = one.enqueued_at
    one.start(arrived_at + 0.5)
    _add(one, 0, _outputs(1, 2), 2, arrived_at + 1.0)
    one.start(arrived_at + 2.0)
    _add(one, 2, _outputs(3), 1, arrived_at + 2.5)
    answer = one.wait()
    assert answer.queue_s == pytest.approx(0.5)
    assert answer.infer_s == pytest.approx(2.0)
    assert answer.batch_rows == 2


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


def test_all_threads_of_a_batch_are_notified():
    """No thread returns before notify, and then each has its own answer."""
    jobs = [job(value) for value in range(5)]
    answers = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda one=one: answers.put(*answered(one)))
        for one in jobs
    ]
    for thread in threads:
        thread.start()
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
        one.wait()


def test_event_loops_are_woken_once_per_batch():
    """Each loop is woken once for all of its jobs, which are done, in their order."""
    woken = []

    def first(done):
        woken.append((first, done, [each.is_done() for each in done]))

    def second(done):
        woken.append((second, done, [each.is_done() for each in done]))

    jobs = [job(place) for place in range(6)]
    for place, wake in enumerate((first, first, second, None, second, None)):
        jobs[place].wake = wake
        assert jobs[place].add(0, _outputs(place), 6, 0.0)
    assert not any(one.is_done() for one in jobs)
    notify(jobs)
    assert woken == [(first, jobs[:2], [True] * 2), (second, jobs[2:5:2], [True] * 2)]
    assert [answered(one) for one in jobs] == [[n] for n in range(6)]
