"""Batch ceilings: batches that run out of device memory run in smaller parts."""

import pytest

from app.batching.batch_ceiling import BatchCeilings
from app.batching.fair_queue import JobSlice
from app.errors import ModelFailed, OutOfDeviceMemory
from tests.support.engines import Echo, Limited
from tests.support.jobs import FakeTime, Notes, executor, job, outcome, run_batch

KEY = job(0).key


def _run_full(runs):
    """Run a batch as large as the ceiling allows."""
    return run_batch(runs, *[1] * runs.ceilings.limit(KEY))


@pytest.mark.parametrize("counts", [[1] * 64, [64]], ids=["64 jobs", "one job"])
def test_out_of_memory_batch_is_halved_until_it_fits(counts):
    """All rows of a batch beyond the device's memory are answered, in order."""
    engine = Limited(20)
    jobs = run_batch(executor(engine, 64), *counts)
    assert [value for one in jobs for value in outcome(one)] == list(range(64))
    assert [len(batch) for batch in engine.batches[:3]] == [64, 32, 16]


def test_out_of_memory_reruns_leave_the_retry_budget_for_failing_jobs():
    """A job that the model fails on is found in a batch that ran out of memory."""

    class Both(Limited):
        def run(self, batch, signature_name):
            found = super().run(batch, signature_name)
            if (batch["input"] == 13).any():
                raise ValueError
            return found

    at_fault, other = job(*[13] * 7), job(1)
    executor(Both(4), 8).execute([JobSlice(at_fault, 0, 7), JobSlice(other, 0, 1)])
    assert isinstance(outcome(at_fault), ModelFailed)
    assert outcome(other) == [1]


def test_out_of_memory_with_a_single_row_fails_that_row():
    """A row that is too large fails alone; the rows of another shape are served."""

    class Narrow(Echo):
        def run(self, batch, signature_name):
            if batch["input"].shape[1] > 1:
                raise OutOfDeviceMemory("too wide")
            return super().run(batch)

    runs = executor(Narrow(), 4)
    wide = [job(1, width=9), job(2, width=9)]
    runs.execute([JobSlice(one, 0, 1) for one in wide])
    assert [type(outcome(one)) for one in wide] == [OutOfDeviceMemory] * 2
    (one,) = run_batch(runs, 4)
    assert outcome(one) == [0, 1, 2, 3]
    assert runs.ceilings.limit(KEY) == 4
    assert runs.ceilings.lowest() == 1


def test_batch_ceiling_is_found_by_binary_search_and_held():
    """Within ten batches the largest size that fits is found, and none fails after."""
    notes, engine = Notes(), Limited(20)
    runs = executor(engine, 64, notes)
    for _ in range(10):
        _run_full(runs)
    assert runs.ceilings.limit(KEY) == 20
    assert notes.limits[-1] == 20
    failures = engine.failures
    for _ in range(50):
        _run_full(runs)
    assert engine.failures == failures


def test_batch_ceiling_is_raised_when_memory_is_free_again():
    """After a minute the size that failed is tried, and kept if it fits now."""
    fake, engine = FakeTime(), Limited(2)
    runs = executor(engine, 4, clock=fake.clock)
    for _ in range(3):
        _run_full(runs)
    assert runs.ceilings.limit(KEY) == 2
    fake.now += 59
    assert runs.ceilings.limit(KEY) == 2
    engine.rows = 4
    fake.now += 1
    for _ in range(3):
        assert all(isinstance(outcome(one), list) for one in _run_full(runs))
    assert runs.ceilings.limit(KEY) == 4


def test_batch_ceiling_retries_wait_twice_as_long_each_time():
    """While the size continues to fail it is tried after 1, then 2, then 4 minutes."""
    fake, engine = FakeTime(), Limited(2)
    runs = executor(engine, 3, clock=fake.clock)
    tried = []
    for minute in range(10):
        fake.now = 1000.0 + 60 * minute
        failures = engine.failures
        _run_full(runs)
        if engine.failures > failures:
            tried.append(minute)
    assert tried == [0, 1, 3, 7]


def test_batch_ceiling_stays_below_the_smallest_size_that_failed():
    """A larger size that fails later does not raise the ceiling."""
    ceilings = BatchCeilings({KEY[0]: range(1, 65)})
    ceilings.overflowed(KEY, 16)
    ceilings.overflowed(KEY, 32)
    assert ceilings.limit(KEY) < 16


def test_batch_ceiling_is_one_of_the_allowed_sizes():
    """With allowed sizes the ceiling is one of them, and parts are padded to it."""
    engine = Limited(20)
    runs = executor(engine, 0, sizes=(4, 16, 64))
    jobs = run_batch(runs, *[1] * 40)
    assert [outcome(one) for one in jobs] == [[n] for n in range(40)]
    assert [len(batch) for batch in engine.batches] == [64, 16, 16, 16]
    assert runs.ceilings.limit(KEY) == 16


def test_batch_ceilings_are_remembered_for_64_row_shapes():
    """The oldest ceiling is forgotten when a 65th row shape runs out of memory."""
    ceilings = BatchCeilings({KEY[0]: range(1, 65)})
    keys = [job(0, width=width).key for width in range(1, 66)]
    for key in keys:
        ceilings.overflowed(key, 64)
    assert ceilings.limit(keys[0]) == 64
    assert all(ceilings.limit(key) < 64 for key in keys[1:])
