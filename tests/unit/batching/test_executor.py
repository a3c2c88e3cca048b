"""The Executor: a row's failure, the device's memory, and a model that is broken."""

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.batching.batch_ceiling import BatchCeilings
from app.batching.fair_queue import JobSlice
from app.errors import (
    Late,
    ModelBroken,
    ModelFailed,
    OutOfDeviceMemory,
    Unavailable,
    WrongOutputs,
)
from tests.support.engines import (
    Computes,
    Echo,
    Limited,
    Poisoned,
    Raises,
    TooFewRows,
)
from tests.support.jobs import FakeTime, Notes, executor, job, outcome


def _run(runs, *counts, first=0.0):
    """Run one job for each count of rows as one batch, numbered from `first`."""
    jobs, number = [], first
    for count in counts:
        jobs.append(job(*(number + row for row in range(count))))
        number += count
    runs.execute([JobSlice(one, 0, one.rows) for one in jobs])
    return jobs


def _values(one):
    return one.inputs["input"][:, 0].tolist()


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=64),
    marks=st.sets(st.integers(0, 63), min_size=1, max_size=3),
)
def test_only_guilty_jobs_fail(counts, marks):
    """Jobs that the model fails on are found, up to log2 n, and cost 2 log2 n each."""
    guilty = {place % len(counts) for place in marks}
    assume(len(guilty) <= max(math.log2(len(counts)), 1))
    starts = [sum(counts[:place]) for place in range(len(counts))]
    notes = Notes()
    runs = executor(Poisoned(*(starts[place] for place in guilty)), 192, notes)
    jobs = _run(runs, *counts)
    for place, one in enumerate(jobs):
        answer = outcome(one)
        if place in guilty:
            assert isinstance(answer, ModelFailed)
        else:
            assert answer == _values(one)
    assert notes.reruns <= 2 * len(guilty) * math.ceil(math.log2(len(counts)))


@given(n=st.integers(2, 64), share=st.floats(0, 1), seed=st.integers())
def test_reruns_are_bounded(n, share, seed):
    """However many are guilty, no more than n or 8 log2 n reruns, and all answered."""
    marks = [row for row in range(n) if random.Random(seed + row).random() < share]
    notes, engine = Notes(), Poisoned(*marks)
    jobs = _run(executor(engine, 64, notes), *[1] * n)
    assert notes.reruns <= max(n, 8 * math.ceil(math.log2(n)))
    for row, one in enumerate(jobs):
        answer = outcome(one)
        assert answer == [row] or isinstance(answer, ModelFailed)
        assert not (row in marks and answer == [row])


@pytest.mark.parametrize("n", [2, 16, 64])
def test_a_model_that_always_fails_costs_as_much_as_one_guilty_job(n):
    """Where no rerun succeeds there are no more than 2 log2 n."""
    notes = Notes()
    jobs = _run(executor(Poisoned(*range(64)), 64, notes), *[1] * n)
    assert notes.reruns <= 2 * math.log2(n)
    assert all(isinstance(outcome(one), ModelFailed) for one in jobs)


def test_a_model_that_failed_by_chance_is_asked_again():
    """A batch that fails once and then not costs nobody an answer."""

    class Hiccup(Echo):
        def run(self, batch, signature_name):
            outputs = super().run(batch)
            if len(self.batches) == 1:
                raise ValueError("by chance")
            return outputs

    jobs = _run(executor(Hiccup(), 4), 1, 1, 1)
    assert [outcome(one) for one in jobs] == [[0], [1], [2]]


def test_wrong_outputs_are_everybodys_error():
    """A model that gives too few rows is not asked again: it is not about a row."""
    notes, engine = Notes(), TooFewRows()
    jobs = _run(executor(engine, 4, notes), 1, 1, 1)
    assert [str(outcome(one)) for one in jobs] == [
        "the model gave 2 rows of 'output' for 3 rows"
    ] * 3
    assert notes.reruns == 0


def test_what_is_not_about_rows_is_not_isolated():
    """An engine that can't be reached now is not asked again for each half."""
    notes = Notes()
    runs = executor(Raises(Unavailable("the other server is away")), 4, notes)
    jobs = _run(runs, 1, 1, first=Raises.poison)
    assert [type(outcome(one)) for one in jobs] == [Unavailable] * 2
    assert notes.reruns == 0


@pytest.mark.parametrize("fate", ["gone", "late"])
def test_nobody_is_run_again_who_does_not_wait(fate):
    """A job whose client goes, or whose deadline passes, is in no rerun."""
    engine = Poisoned(1.0)
    jobs = [job(0), job(1), job(2), job(3, is_disconnected=lambda: fate == "gone")]
    if fate == "late":
        jobs[3].deadline = 0.0
    executor(engine, 4).execute([JobSlice(one, 0, 1) for one in jobs])
    assert jobs[3].is_answered()
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
                raise Unavailable("the other server is away")
            return super().run(batch)

    runs = executor(Keeps(), 4, sizes=(4,))
    for value in (0, 1, 2, 3):
        _run(runs, 1, first=value)
    assert np.shares_memory(batches[0], batches[1])
    assert np.shares_memory(batches[1], batches[2])
    assert not np.shares_memory(batches[2], batches[3])


# The device's memory.


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    """All rows of a batch beyond the device's memory are answered right."""
    notes, engine = Notes(), Limited(20)
    jobs = _run(executor(engine, 64, notes), *[1] * 64)
    assert [outcome(one) for one in jobs] == [[n] for n in range(64)]
    assert [len(batch) for batch in engine.batches[:3]] == [64, 32, 16]


def test_a_job_is_cut_where_it_does_not_fit():
    """A request with more rows than fit is run in parts and joined in order."""
    (one,) = _run(executor(Limited(20), 64), 64)
    assert outcome(one) == list(range(64))


def test_a_guilty_job_is_found_where_the_batch_did_not_fit():
    """Runs in smaller parts leave as many as ever to tell the guilty from others."""

    class Both(Limited):
        def run(self, batch, signature_name):
            found = super().run(batch, signature_name)
            if (batch["input"] == 13).any():
                raise ValueError
            return found

    guilty, innocent = job(*[13] * 7), job(1)
    pieces = [JobSlice(guilty, 0, 7), JobSlice(innocent, 0, 1)]
    executor(Both(4), 8).execute(pieces)
    assert isinstance(outcome(guilty), ModelFailed)
    assert outcome(innocent) == [1]


def test_the_ceiling_is_found_and_held():
    """Within ten batches the largest size that fits is found, and none fails after."""
    notes, engine = Notes(), Limited(20)
    runs = executor(engine, 64, notes)
    kind = job(0).key
    for _ in range(10):
        _run(runs, *[1] * runs.ceilings.limit(kind))
    assert runs.ceilings.limit(kind) == 20
    assert notes.limits[-1] == 20
    failures = engine.failures
    for _ in range(50):
        _run(runs, *[1] * runs.ceilings.limit(kind))
    assert engine.failures == failures


def test_a_single_row_that_does_not_fit_gets_507():
    """One row that is too large fails alone; the rows of another shape go on."""
    notes = Notes()

    class Narrow(Echo):
        def run(self, batch, signature_name):
            if batch["input"].shape[1] > 1:
                raise OutOfDeviceMemory("too wide")
            return super().run(batch)

    runs = executor(Narrow(), 4, notes)
    wide = [job(1, width=9), job(2, width=9)]
    runs.execute([JobSlice(one, 0, 1) for one in wide])
    assert [type(outcome(one)) for one in wide] == [OutOfDeviceMemory] * 2
    (one,) = _run(runs, 4)
    assert outcome(one) == [0, 1, 2, 3]
    assert runs.ceilings.limit(one.key) == 4


def test_a_higher_ceiling_is_tried_again_later():
    """After a minute the size that failed is tried, and kept where it fits now."""
    fake, engine = FakeTime(), Limited(2)
    runs = executor(engine, 4, clock=fake.clock)
    kind = job(0).key
    for _ in range(3):
        _run(runs, *[1] * runs.ceilings.limit(kind))
    assert runs.ceilings.limit(kind) == 2
    fake.now += 59
    assert runs.ceilings.limit(kind) == 2
    engine.rows = 4
    fake.now += 1
    for _ in range(3):
        jobs = _run(runs, *[1] * runs.ceilings.limit(kind))
        assert all(isinstance(outcome(one), list) for one in jobs)
    assert runs.ceilings.limit(kind) == 4


def test_a_failure_of_more_rows_says_nothing_new():
    """A limit stays below the smallest size that failed, whatever fails after it."""
    ceilings, kind = BatchCeilings(range(1, 65)), job(0).key
    ceilings.overflowed(kind, 16)
    ceilings.overflowed(kind, 32)
    assert ceilings.limit(kind) < 16


def test_each_retry_waits_twice_as_long():
    """While the size goes on failing it is tried after 1, then 2, then 4 minutes."""
    fake, engine = FakeTime(), Limited(2)
    runs = executor(engine, 3, clock=fake.clock)
    kind = job(0).key
    tried = []
    for minute in range(10):
        fake.now = 1000.0 + 60 * minute
        failures = engine.failures
        _run(runs, *[1] * runs.ceilings.limit(kind))
        if engine.failures > failures:
            tried.append(minute)
    assert tried == [0, 1, 3, 7]


def test_only_allowed_sizes_are_tried():
    """Where sizes are set the ceiling is one of them, and parts are filled up to it."""
    engine = Limited(20)
    runs = executor(engine, 0, sizes=(4, 16, 64))
    jobs = _run(runs, *[1] * 40)
    assert [outcome(one) for one in jobs] == [[n] for n in range(40)]
    assert [len(batch) for batch in engine.batches] == [64, 16, 16, 16]
    assert runs.ceilings.limit(jobs[0].key) == 16


# A model that is broken.


def _broken(engine, fake, notes=None):
    good = {"serving_default": {"input": job(0).inputs["input"]}}
    return executor(engine, 4, notes, known_good=good, clock=fake.clock)


def _left_alone(engine, fake):
    """One whose model has failed on everything, three batches long."""
    runs = _broken(engine, fake)
    for _ in range(3):
        _run(runs, 1)
    return runs


def test_a_broken_model_is_left_alone_for_a_while():
    """After three batches without a success jobs fail at once, and one row is tried."""
    fake, engine = FakeTime(), Poisoned(*range(64))
    runs = _broken(engine, fake)
    for _ in range(3):
        assert isinstance(outcome(_run(runs, 1)[0]), ModelFailed)
    asked = len(engine.batches)
    assert asked == 4
    for _ in range(20):
        answer = outcome(_run(runs, 4)[0])
        assert isinstance(answer, ModelBroken)
        assert answer.retry_after_s == 1
    assert len(engine.batches) == asked
    fake.now += 1
    assert isinstance(outcome(_run(runs, 1)[0]), ModelBroken)
    assert len(engine.batches) == asked + 1


def test_a_model_that_computes_again_serves_again():
    """A broken model is served again with the first probe that succeeds."""
    fake, engine = FakeTime(), Poisoned(*range(64))
    runs = _left_alone(engine, fake)
    engine.marks = ()
    assert isinstance(outcome(_run(runs, 1)[0]), ModelBroken)
    fake.now += 1
    assert outcome(_run(runs, 1)[0]) == [0]


def test_rows_that_fail_are_not_a_broken_model():
    """However many bad rows come, a good one is served: the model computes zeros."""
    engine = Poisoned(7.0)
    runs = _broken(engine, FakeTime())
    for _ in range(10):
        assert isinstance(outcome(_run(runs, 1, first=7.0)[0]), ModelFailed)
        assert outcome(_run(runs, 1, first=1.0)[0]) == [1]
    assert len(engine.batches) == 20
    for _ in range(10):
        assert isinstance(outcome(_run(runs, 1, first=7.0)[0]), ModelFailed)


@pytest.mark.parametrize(
    "error", [Late("late"), OutOfDeviceMemory("full"), Unavailable("away")]
)
def test_what_is_no_success_does_not_count_as_one(error):
    """A batch that failed for another reason does not make a broken model sound."""
    engine = Raises(ValueError())
    engine.poison = 0.0
    runs = _broken(engine, FakeTime())
    for each in (ValueError(), ValueError(), error, ValueError()):
        engine.error = each
        _run(runs, 1)
    assert isinstance(outcome(_run(runs, 1)[0]), ModelBroken)


def test_a_probe_with_wrong_outputs_has_failed():
    """A model that gives one row for all of them is broken, whatever it raises."""
    runs = _broken(TooFewRows(), FakeTime())
    for _ in range(3):
        assert isinstance(outcome(_run(runs, 1)[0]), WrongOutputs)
    assert isinstance(outcome(_run(runs, 1)[0]), ModelBroken)


def test_what_is_logged_says_of_which_model(caplog):
    """A batch that fails, a broken model and one that recovers name their model."""
    fake, engine = FakeTime(), Poisoned(*range(64))
    runs = _left_alone(engine, fake)
    engine.marks = ()
    fake.now += 1
    _run(runs, 1)
    text = "model m version 1: "
    assert [record.getMessage() for record in caplog.records] == [
        *[f"{text}a batch of 1: the model failed (ValueError)"] * 3,
        f"{text}fails on everything; left alone: 1 s",
        f"{text}computes again",
    ]


def test_an_engine_that_can_not_be_closed_is_logged(caplog):
    """Whatever an engine raises when it is closed ends no thread."""

    class CanNotClose(Echo):
        def close(self):
            raise OSError("no")

    executor(CanNotClose(), 4).close()
    assert "model m version 1: its engine did not close in order" in caplog.text


def test_pauses_grow_to_half_a_minute():
    """Each probe that fails doubles the pause, up to 30 seconds."""
    fake = FakeTime()
    runs = _left_alone(Poisoned(*range(64)), fake)
    pauses = []
    for _ in range(7):
        pause = outcome(_run(runs, 1)[0]).retry_after_s
        pauses.append(pause)
        fake.now += pause
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


# What is told of batches.


@pytest.mark.parametrize(("follows", "takes_s"), [(True, 3.0), (False, 2.0)])
def test_a_batch_that_follows_takes_what_lies_between_too(follows, takes_s):
    """The time from one batch to the next is learnt where the next one waited."""
    fake = FakeTime()

    class TwoSeconds(Echo):
        def run(self, batch, signature_name):
            fake.now += 2
            return super().run(batch)

    runs = executor(TwoSeconds(), 4, clock=fake.clock)
    for _ in range(60):
        runs.execute([JobSlice(job(1), 0, 1)], back_to_back=follows)
        fake.now += 1
    assert runs.times.expected_s(1) == pytest.approx(takes_s, abs=0.1)


def test_a_pause_is_not_a_batch_s():
    """The time for which a broken model was left alone is nobody's batch time."""
    fake, engine = FakeTime(), Poisoned(*range(64))
    runs = _left_alone(engine, fake)
    engine.marks = ()
    for _ in range(2):
        fake.now += 0.5
        runs.execute([JobSlice(job(1), 0, 1)], back_to_back=True)
    assert runs.times.expected_s(1) == 0.5


def test_a_batch_takes_as_long_as_what_it_is_filled_up_to():
    """Rows between two sizes are expected to take what the larger one takes."""
    fake = FakeTime()

    class OneSecondARow(Echo):
        def run(self, batch, signature_name):
            fake.now += len(batch["input"])
            return super().run(batch)

    runs = executor(OneSecondARow(), 64, sizes=(1, 64), clock=fake.clock)
    for rows in [1, 64] * 60:
        _run(runs, rows)
    assert [runs.expected_s(rows) for rows in (1, 2, 64)] == pytest.approx(
        [1, 64, 64], abs=0.1
    )


def test_what_runs_is_told():
    """While a batch is in the engine its rows and seconds are told, else nothing."""
    fake, seen = FakeTime(), []

    class Slow(Echo):
        def run(self, batch, signature_name):
            fake.now += 7
            seen.append(runs.running())
            return super().run(batch)

    runs = executor(Slow(), 4, clock=fake.clock)
    assert runs.running() is None
    _run(runs, 3)
    assert seen == [(3, 7.0)]
    assert runs.running() is None


def test_nothing_runs_after_outputs_that_are_no_arrays():
    """A model that gives lists has failed, and does not seem to run for ever."""
    (signature,) = Echo().signatures.values()
    runs = executor(Computes(lambda _: {"output": [[1.0]]}, signature), 4)
    (one,) = _run(runs, 1)
    assert isinstance(outcome(one), ModelFailed)
    assert runs.running() is None


def test_a_probe_runs_as_a_batch_does():
    """The row that tells whether a model is broken is seen to run, and for how long."""
    fake, seen = FakeTime(), []

    class Failing(Echo):
        def run(self, batch, signature_name):
            seen.append(runs.running())
            raise ValueError

    runs = _broken(Failing(), fake)
    for _ in range(3):
        _run(runs, 2)
    assert seen == [(2, 0.0)] * 3 + [(1, 0.0)]
    assert runs.running() is None
