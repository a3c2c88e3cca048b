"""Executor: reruns within the retry budget, batch times, and the running batch."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.batching.fair_queue import JobSlice
from app.errors import ModelFailed, RefusedInput, Unavailable, WrongOutputs
from tests.support.engines import (
    Computes,
    Echo,
    Poisoned,
    Raises,
    Refuses,
    TooFewRows,
)
from tests.support.jobs import FakeTime, Notes, executor, job, outcome, run_batch

AWAY = Unavailable("the other server is away")


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=64),
    marks=st.sets(st.integers(0, 63), min_size=1, max_size=3),
)
def test_retry_budget_suffices_to_find_the_jobs_at_fault(counts, marks):
    """Up to log2 n jobs at fault are found with 2 log2 n reruns each."""
    at_fault = {place % len(counts) for place in marks}
    assume(len(at_fault) <= max(math.log2(len(counts)), 1))
    starts = [sum(counts[:place]) for place in range(len(counts))]
    notes = Notes()
    runs = executor(Poisoned(*(starts[place] for place in at_fault)), 192, notes)
    for place, one in enumerate(run_batch(runs, *counts)):
        answer = outcome(one)
        if place in at_fault:
            assert isinstance(answer, ModelFailed)
        else:
            assert answer == one.inputs["input"][:, 0].tolist()
    assert notes.reruns <= 2 * len(at_fault) * math.ceil(math.log2(len(counts)))


@given(n=st.integers(2, 64), share=st.floats(0, 1), seed=st.integers())
def test_retry_budget_bounds_the_reruns(n, share, seed):
    """However many are at fault, others fail only if the model never succeeds.

    There are at most 1.5 n or 8 log2 n reruns.
    """
    marks = [row for row in range(n) if random.Random(seed + row).random() < share]
    notes = Notes()
    jobs = run_batch(executor(Poisoned(*marks), 64, notes), *[1] * n)
    assert notes.reruns <= max(n + n // 2, 8 * math.ceil(math.log2(n)))
    found = [outcome(one) for one in jobs]
    answered = {row for row, each in enumerate(found) if each == [row]}
    assert answered in (set(), set(range(n)) - set(marks))
    failed = [found[row] for row in set(range(n)) - answered]
    assert all(isinstance(each, ModelFailed) for each in failed)


@pytest.mark.parametrize("n", [2, 16, 64])
def test_retry_budget_ends_early_without_a_success(n):
    """A model that always fails has no more than 2 log2 n reruns."""
    notes = Notes()
    jobs = run_batch(executor(Poisoned(*range(64)), 64, notes), *[1] * n)
    assert notes.reruns <= 2 * math.log2(n)
    assert all(isinstance(outcome(one), ModelFailed) for one in jobs)


@pytest.mark.parametrize("n", [2, 3, 16])
def test_rows_that_the_model_refuses_are_all_found(n, caplog):
    """No row that is invalid is a failure of the model, even if all are."""
    caplog.set_level("INFO", "app")
    jobs = run_batch(executor(Refuses(*range(64)), 64), *[1] * n)
    assert [type(outcome(one)) for one in jobs] == [RefusedInput] * n
    levels = {record.levelname for record in caplog.records}
    assert levels == {"INFO"}
    assert not any(record.exc_info for record in caplog.records)


@given(n=st.integers(2, 64), share=st.floats(0, 1), seed=st.integers())
def test_no_valid_row_is_refused(n, share, seed):
    """However many are invalid, the others are answered."""
    marks = [row for row in range(n) if random.Random(seed + row).random() < share]
    notes = Notes()
    jobs = run_batch(executor(Refuses(*marks), 64, notes), *[1] * n)
    assert notes.reruns <= max(n + n // 2, 8 * math.ceil(math.log2(n)))
    for row, one in enumerate(jobs):
        answer = outcome(one)
        assert isinstance(answer, RefusedInput) if row in marks else answer == [row]


def test_batch_that_fails_once_succeeds_in_its_reruns():
    """A batch that fails by chance fails no job."""

    class Hiccup(Echo):
        def run(self, batch, signature_name):
            outputs = super().run(batch)
            if len(self.batches) == 1:
                raise ValueError("by chance")
            return outputs

    jobs = run_batch(executor(Hiccup(), 4), 1, 1, 1)
    assert [outcome(one) for one in jobs] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("engine", "error"), [(TooFewRows(), WrongOutputs), (Raises(AWAY), Unavailable)]
)
def test_errors_that_no_row_causes_have_no_reruns(engine, error):
    """Wrong outputs and an unavailable engine fail the whole batch at once."""
    notes = Notes()
    jobs = run_batch(executor(engine, 4, notes), 1, 1, first=Raises.poison)
    assert [type(outcome(one)) for one in jobs] == [error] * 2
    assert notes.reruns == 0


def test_failed_batch_wakes_its_event_loop_once():
    """All of its jobs that have no answer yet are failed together."""
    woken = []
    jobs = [job(0), job(1), job(2)]
    for one in jobs:
        one.wake = woken.append
    jobs[1].fail(AWAY)
    executor(TooFewRows(), 4).execute([JobSlice(one, 0, 1) for one in jobs])
    assert woken == [[jobs[1]], [jobs[0], jobs[2]]]
    assert jobs[1].error is AWAY
    assert isinstance(jobs[2].error, WrongOutputs)


@pytest.mark.parametrize("fate", ["disconnect", "deadline"])
def test_reruns_leave_out_jobs_after_a_disconnect_or_deadline(fate):
    """A job whose client disconnects, or whose deadline passes, is in no rerun."""
    engine = Poisoned(1.0)
    last = job(3, is_abandoned=fate == "disconnect")
    if fate == "deadline":
        last.deadline = 0.0
    jobs = [job(0), job(1), job(2), last]
    executor(engine, 4).execute([JobSlice(one, 0, 1) for one in jobs])
    assert last.is_answered()
    assert [3.0 in batch for batch in engine.seen()] == [True] + [False] * (
        len(engine.batches) - 1
    )


def test_batch_memory_is_reused_unless_its_batch_failed():
    """Batches share one memory, but none overwrites rows that a failed run may read."""
    batches = []

    class Keeps(Echo):
        def run(self, batch, signature_name):
            batches.append(batch["input"])
            if (batch["input"] == 2).any():
                raise AWAY
            return super().run(batch)

    runs = executor(Keeps(), 4, sizes=(4,))
    for value in (0, 1, 2, 3):
        run_batch(runs, 1, first=value)
    assert np.shares_memory(batches[0], batches[1])
    assert np.shares_memory(batches[1], batches[2])
    assert not np.shares_memory(batches[2], batches[3])


def test_engine_that_fails_to_close_is_logged(caplog):
    """Close logs what the engine raises, and raises nothing."""

    class CanNotClose(Echo):
        def close(self):
            raise OSError("no")

    executor(CanNotClose(), 4).close()
    assert "model m version 1: its engine did not close in order" in caplog.text


# Batch times, and the batch that runs.


class _Slow(Echo):
    """Takes one second a row and two for each batch, on a fake clock."""

    def __init__(self, fake):
        super().__init__()
        self.fake = fake

    def run(self, batch, signature_name):
        self.fake.now += 2 + len(batch["input"])
        return super().run(batch)


@pytest.mark.parametrize(("back_to_back", "takes_s"), [(True, 4.0), (False, 3.0)])
def test_back_to_back_batch_counts_the_time_since_the_last_one(back_to_back, takes_s):
    """The time between two batches is learned if the second did not wait for rows."""
    fake = FakeTime()
    runs = executor(_Slow(fake), 4, clock=fake.clock)
    for _ in range(60):
        runs.execute([JobSlice(job(1), 0, 1)], back_to_back=back_to_back)
        fake.now += 1
    assert runs.times.expected_s(1) == pytest.approx(takes_s, abs=0.1)


def test_expected_batch_time_is_that_of_the_padded_batch():
    """Rows between two sizes are expected to take what the larger one takes."""
    fake = FakeTime()
    runs = executor(_Slow(fake), 64, sizes=(1, 64), clock=fake.clock)
    for rows in [1, 64] * 60:
        run_batch(runs, rows)
    expected = [runs.expected_s(rows) for rows in (1, 2, 64)]
    assert expected == pytest.approx([3, 66, 66], abs=0.1)


def test_running_batch_is_reported_with_its_seconds():
    """While a batch is in the engine its rows and seconds are reported, else None."""
    fake, seen = FakeTime(), []

    class Reports(_Slow):
        def run(self, batch, signature_name):
            outputs = super().run(batch, signature_name)
            seen.append(runs.running())
            return outputs

    runs = executor(Reports(fake), 4, clock=fake.clock)
    assert runs.running() is None
    run_batch(runs, 3)
    assert seen == [(3, 5.0)]
    assert runs.running() is None


def test_no_batch_is_running_after_outputs_that_are_no_arrays():
    """A model that returns lists has failed, and its batch has ended."""
    (signature,) = Echo().signatures.values()
    runs = executor(Computes(lambda _: {"output": [[1.0]]}, signature), 4)
    (one,) = run_batch(runs, 1)
    assert isinstance(outcome(one), ModelFailed)
    assert runs.running() is None


def test_batch_of_an_engine_that_pads_is_padded_before_it_runs():
    """It is copied once, and its size's time is learned and its memory searched for."""
    engine = Echo()
    (signature,) = engine.signatures.values()
    engine.signatures["serving_default"] = replace(signature, padded_sizes=(1, 2, 4, 8))
    runs = executor(engine, 8)
    jobs = run_batch(runs, 2, 3)
    assert [outcome(one) for one in jobs] == [[0, 1], [2, 3, 4]]
    assert [len(batch) for batch in engine.batches] == [8]
    runs.ceilings.overflowed(jobs[0].key, 8)
    assert runs.ceilings.limit(jobs[0].key) == 2
