"""Unbatched: one inference for each request, in the request's own thread."""

import math
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from app.batching.unbatched import Unbatched
from app.errors import Abandoned, Late, ModelFailed, Stopping, TooLarge
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Echo, Puppet, Raises, TooFewRows
from tests.support.jobs import Notes, answered, executor, job, outcome, outputs, submit


def _unbatched(engine, observer=None, sizes=()):
    runner = Unbatched(executor(engine, 16, observer, sizes), 16)
    runner.start()
    return runner


def test_unbatched_runs_each_job_alone():
    """Each job is one inference, and is answered when submit returns."""
    engine, notes = Echo(), Notes()
    runner = _unbatched(engine, notes)
    jobs = [submit(runner, 1), submit(runner, *range(10))]
    assert all(one.is_answered() for one in jobs)
    assert answered(jobs[0]) == [1]
    assert answered(jobs[1]) == list(range(10))
    assert engine.seen() == [[1], list(range(10))]
    assert notes.batches == [1, 10]


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        pytest.param({"deadline": 0.0}, Late, id="deadline"),
        pytest.param({"is_abandoned": True}, Abandoned, id="disconnect"),
    ],
)
def test_unbatched_drops_a_job_past_its_deadline_or_disconnected(fate, error):
    """A late job, and one whose client disconnected, are not run."""
    engine, notes = Echo(), Notes()
    one = submit(_unbatched(engine, notes), 1, **fate)
    assert isinstance(outcome(one), error)
    assert engine.seen() == []
    assert notes.batches == []


def test_unbatched_drops_the_rest_of_a_job_on_disconnect():
    """A client that disconnects during its first batch gets no second one."""

    class Leaves(Echo):
        def run(self, batch, signature_name):
            one.abandon()
            return super().run(batch, signature_name)

    engine, one = Leaves(), job(*range(8))
    _unbatched(engine, sizes=(4,)).submit(one)
    assert isinstance(outcome(one), Abandoned)
    assert engine.seen() == [[0, 1, 2, 3]]


def test_unbatched_runs_no_batch_after_one_that_failed():
    """A failed batch fails its job, whose other batches are not run; others are."""
    engine = Raises(ValueError("secret"))
    runner = _unbatched(engine, sizes=(4,))
    one = submit(runner, Raises.poison, *range(7))
    assert isinstance(outcome(one), ModelFailed)
    assert len(engine.batches) == 1
    assert answered(submit(runner, 1)) == [1]


def test_unbatched_is_idle_when_no_job_runs():
    """It is busy during a job, and idle once it has failed, too."""
    seen = []

    class Looks(Raises):
        def run(self, batch, signature_name):
            seen.append(runner.is_idle())
            return super().run(batch, signature_name)

    runner = _unbatched(Looks(ValueError()), sizes=(1,))
    assert runner.is_idle()
    submit(runner, 1, Raises.poison)
    assert seen == [False, False]
    assert runner.is_idle()


def test_unbatched_checks_the_outputs():
    """Outputs with too few rows are an error with both numbers."""
    with pytest.raises(ModelFailed, match="gave 2 rows of 'output' for 3 rows"):
        outputs(submit(_unbatched(TooFewRows()), 1, 2, 3))


def test_unbatched_runs_requests_at_the_same_time():
    """Two request threads are in the model at once, each with memory of its own."""
    both = threading.Barrier(2)

    class Meets(Echo):
        def run(self, batch, signature_name):
            both.wait(10)
            return super().run(batch, signature_name)

    runner = _unbatched(Meets(), sizes=(2,))
    jobs = [job(1), job(2)]
    threads = [threading.Thread(target=runner.submit, args=(one,)) for one in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answered(one) for one in jobs] == [[1], [2]]


def test_unbatched_refuses_a_request_larger_than_the_queue_of_a_batcher():
    """A request may have as many rows as a Batcher's queue would hold."""
    runner = _unbatched(Echo())
    assert answered(submit(runner, *range(16))) == list(range(16))
    with pytest.raises(TooLarge, match=r"17 rows .* at most 16"):
        submit(runner, *range(17))


def test_unbatched_refuses_after_close():
    """A closed runner raises Stopping, and its engine is closed."""
    engine = Echo()
    runner = _unbatched(engine)
    runner.close(10)
    runner.close(10)
    with pytest.raises(Stopping):
        submit(runner, 1)
    assert engine.closed >= 1


@pytest.mark.parametrize("waits", [True, False])
def test_unbatched_close_leaves_the_engine_open_while_it_runs(waits):
    """The last running request closes the engine, whether or not close waits for it."""
    engine = Blocks()
    runner, one = _unbatched(engine), job(1)
    request = threading.Thread(target=runner.submit, args=(one,))
    request.start()
    engine.wait_until_started()
    runner.close(0)
    assert engine.closed == 0
    with pytest.raises(Stopping):
        submit(runner, 2)
    engine.unblock()
    if waits:
        # Longer than a test may take: the end of the request ends the wait.
        runner.close(600)
        assert engine.closed
    request.join()
    assert engine.closed >= 1
    assert answered(one) == [1]


def test_unbatched_stuck_time_counts_from_the_last_end_of_a_batch(monkeypatch):
    """The time without progress starts again with each batch's end."""
    clock = standing_clock(monkeypatch, "app.batching.unbatched")
    engine = Puppet()
    runner = _unbatched(engine, sizes=(1,))
    assert runner.stuck_s() == 0
    with ThreadPoolExecutor(2) as pool:
        requests = []
        for rows in (1, 2):
            clock.now += 40
            one = job(*range(rows), deadline=math.inf)
            requests.append(pool.submit(runner.submit, one))
            engine.begun()
        assert runner.stuck_s() == 40
        clock.now += 40
        for _ in range(2):
            engine.finish()
        engine.begun()
        wait(requests, return_when=FIRST_COMPLETED)
        assert runner.stuck_s() == 0
        clock.now += 5
        assert runner.stuck_s() == 5
        engine.finish()
    assert runner.stuck_s() == 0
