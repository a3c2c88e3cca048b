"""A job: one answer, all rows, the right times."""

import contextlib
import queue
import threading
import time

import numpy as np
import pytest

from app.batching.job import Job, notify
from app.errors import Late, ModelFailed, Stopping
from tests.support.jobs import job


def _outputs(*values):
    return {"output": np.array(values, np.float32).reshape(-1, 1)}


def _add(one, *part):
    if one.add(*part):
        notify([one])


def test_wait_gives_the_outputs_back():
    """The outputs that were added are the answer."""
    one = job(7)
    one.start(one.enqueued_at + 1.0)
    _add(one, 0, _outputs(7), 5, one.enqueued_at + 3.0)
    answer = one.wait()
    assert answer.outputs["output"].tolist() == [[7]]
    assert answer.batch_rows == 5


def test_wait_raises_the_job_s_error():
    """A job that failed raises its own error in the thread that waits."""
    one = job(7)
    error = ModelFailed("the model failed")
    one.fail(error)
    with pytest.raises(ModelFailed) as caught:
        one.wait()
    assert caught.value is error


def test_neighbours_raise_one_error_without_each_other_s_traceback():
    """An error that two jobs share has in each only that job's own traceback."""
    error = ModelFailed("the model failed")
    depths = []
    for each in (job(1), job(2)):
        each.fail(error)
        with pytest.raises(ModelFailed) as caught:
            each.wait()
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1]


@pytest.mark.parametrize("late_by_s", [0.001, 60.0], ids=["just now", "long ago"])
def test_wait_ends_at_the_deadline(late_by_s):
    """Once the deadline has passed, wait raises Late at once."""
    with pytest.raises(Late):
        job(7, deadline=time.monotonic() - late_by_s).wait()


def test_wait_ends_at_a_deadline_to_come():
    """Without an answer wait blocks until the deadline and not longer."""
    deadline = time.monotonic() + 0.02
    with pytest.raises(Late):
        job(7, deadline=deadline).wait()
    assert time.monotonic() >= deadline


def test_an_answer_that_is_there_is_given_after_the_deadline():
    """An answer that is there already is not thrown away for being late."""
    one = job(7, deadline=time.monotonic() - 1)
    one.start(one.enqueued_at)
    _add(one, 0, _outputs(7), 1, one.enqueued_at)
    assert one.wait().outputs["output"].tolist() == [[7]]


def test_wait_blocks_until_another_thread_answers():
    """A waiting thread gets the answer that another thread gives later."""
    one, answers = job(7), []
    waiter = threading.Thread(target=lambda: answers.append(one.wait()))
    waiter.start()
    one.start(one.enqueued_at)
    _add(one, 0, _outputs(7), 1, one.enqueued_at)
    waiter.join(10)
    assert answers[0].outputs["output"].tolist() == [[7]]


def test_pieces_are_joined_in_order():
    """Rows that ran in several batches come back as one array, in their own order."""
    one = job(1, 2, 3, 4, 5)
    for values in ([3, 4], [1, 2], [5]):
        assert not one.is_answered()
        _add(one, values[0] - 1, _outputs(*values), 2, 0.0)
    assert one.is_answered()
    assert one.wait().outputs["output"].tolist() == [[1], [2], [3], [4], [5]]


def test_each_output_is_joined_by_itself():
    """A model's several outputs are joined each under its own name."""
    one = job(1, 2)
    for value in (1, 2):
        _add(one, value - 1, {"a": np.array([value]), "b": np.array([-value])}, 1, 0.0)
    outputs = one.wait().outputs
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "a": [1, 2],
        "b": [-1, -2],
    }


def test_the_first_answer_stands():
    """After an error neither outputs nor another error change the answer."""
    one = job(7)
    one.fail(ModelFailed("first"))
    _add(one, 0, _outputs(7), 1, 0.0)
    one.fail(Stopping("second"))
    with pytest.raises(ModelFailed, match="first"):
        one.wait()


def test_a_result_is_not_overtaken_by_an_error():
    """After the result a later error is ignored."""
    one = job(7)
    _add(one, 0, _outputs(7), 1, 0.0)
    one.fail(Stopping("too late"))
    assert one.wait().outputs["output"].tolist() == [[7]]


def test_threads_that_race_give_one_answer():
    """Of eight threads that answer at the same time exactly one is heard."""
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
            assert one.wait().outputs["output"].tolist() == [[7]]


def test_times_span_from_arrival_to_the_first_and_the_last_row():
    """Queue time ends with the first piece's start, infer time with the last's end."""
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


def test_a_job_that_never_ran_is_still_in_the_queue():
    """The queue time of a job that has not run goes on growing."""
    one = job(7)
    first = one.queue_s()
    one.enqueued_at -= 5.0
    assert one.queue_s() >= first + 5.0


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        pytest.param(job(1), job(2, 3), True, id="rows"),
        pytest.param(job(1), job(1, width=2), False, id="shape"),
        pytest.param(job(1), job(1, dtype=np.float64), False, id="dtype"),
        pytest.param(
            job(1), Job({"other": job(1).inputs["input"]}, 0.0), False, id="name"
        ),
    ],
)
def test_the_key_tells_what_may_share_a_batch(first, second, alike):
    """Keys are equal when names, dtypes and row shapes are, whatever the rows."""
    assert (first.key == second.key) == alike


def test_all_threads_of_a_batch_are_told():
    """Nobody has an answer before all are told, and then each has its own."""
    jobs = [job(value) for value in range(5)]
    answers = queue.SimpleQueue()

    def wait(one):
        answers.put(one.wait().outputs["output"].item())

    threads = [threading.Thread(target=wait, args=(one,)) for one in jobs]
    for thread in threads:
        thread.start()
    for value, one in enumerate(jobs):
        assert one.add(0, _outputs(value), 5, 0.0)
    assert answers.empty()
    notify(jobs)
    assert sorted(answers.get(timeout=10) for _ in jobs) == [0, 1, 2, 3, 4]
    for thread in threads:
        thread.join()


def test_who_gave_up_has_no_answer_to_pass_on():
    """A job whose thread no longer waits does not become answered, so none is told."""
    late = job(7, deadline=time.monotonic() - 1)
    with pytest.raises(Late):
        late.wait()
    assert late.is_answered()
    assert not late.add(0, _outputs(7), 1, 0.0)


def test_who_is_late_gets_an_answer_that_is_about_to_be_told():
    """Past its deadline a job whose answer is there waits to be told."""
    late = job(1, deadline=time.monotonic() - 1)
    assert late.add(0, _outputs(7), 2, 0.0)
    answers = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: answers.put(late.wait()))
    thread.start()
    notify([late])
    assert answers.get(timeout=10).batch_rows == 2
    thread.join()


def test_a_loop_is_woken_once_for_a_batch():
    """Of jobs that share a loop one call tells all, in their order, as answered."""
    woken = []
    jobs = [job(value) for value in range(5)]

    def wake(told):
        woken.append([each.is_done() for each in told])

    for value, one in enumerate(jobs):
        one.wake = wake
        assert one.add(0, _outputs(value), 5, 0.0)
    assert not any(one.is_done() for one in jobs)
    notify(jobs)
    assert woken == [[True] * 5]
    assert [one.wait().outputs["output"].item() for one in jobs] == [0, 1, 2, 3, 4]


def test_a_failed_job_wakes_its_loop_once():
    """An error is told as an answer is, and what comes after it is not."""
    woken = []
    one = job(7)
    one.wake = woken.append
    one.fail(ModelFailed("first"))
    one.fail(Stopping("second"))
    assert woken == [[one]]
    with pytest.raises(ModelFailed, match="first"):
        one.wait()


def test_threads_and_loops_may_share_a_batch():
    """Each loop is woken once for its own jobs, and no thread waits for another."""
    woken = {"a": [], "b": []}
    wakes = {"a": woken["a"].append, "b": woken["b"].append, "": None}
    jobs = {place: job(place) for place in range(6)}
    for place, one in jobs.items():
        one.wake = wakes["aab b"[place : place + 1].strip()]
        assert one.add(0, _outputs(place), 6, 0.0)
    notify(list(jobs.values()))
    assert woken == {"a": [[jobs[0], jobs[1]]], "b": [[jobs[2], jobs[4]]]}
    assert all(one.is_done() for one in jobs.values())
    for place in (3, 5):
        assert jobs[place].wait().outputs["output"].item() == place
