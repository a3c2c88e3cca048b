"""Circuit breaker: a model that fails on every batch gets none for a while."""

import pytest

from app.batching.fair_queue import JobSlice
from app.errors import (
    Late,
    ModelBroken,
    ModelFailed,
    OutOfDeviceMemory,
    Unavailable,
    WrongOutputs,
)
from tests.support.engines import Echo, Poisoned, Raises, Refuses, TooFewRows
from tests.support.jobs import FakeTime, executor, job, outcome, run_batch


@pytest.fixture(name="fake")
def _fake():
    return FakeTime()


def _executor(engine, fake):
    """Return an Executor with a circuit breaker, which probes with a row of zero."""
    good = {"serving_default": {"input": job(0).inputs["input"]}}
    return executor(engine, 4, known_good=good, clock=fake.clock)


def _opened(engine, fake):
    """Return an Executor whose model has failed on three batches and the probe."""
    runs = _executor(engine, fake)
    for _ in range(3):
        assert isinstance(_outcome(runs), ModelFailed)
    return runs


def _outcome(runs, value=0.0):
    """Run a batch of one row; return its values or its error."""
    return outcome(run_batch(runs, 1, first=value)[0])


def test_circuit_breaker_opens_after_three_failed_batches_and_probes(fake):
    """After three failed batches jobs fail at once; one row is tried a second later."""
    engine = Poisoned(*range(64))
    runs = _opened(engine, fake)
    assert len(engine.batches) == 4
    for _ in range(20):
        answer = _outcome(runs)
        assert isinstance(answer, ModelBroken)
        assert answer.retry_after_s == 1
    assert len(engine.batches) == 4
    fake.now += 1
    assert isinstance(_outcome(runs), ModelBroken)
    assert len(engine.batches) == 5


def test_circuit_breaker_opens_for_a_model_that_refuses_all_rows(fake):
    """It refuses the row of the probe too, which is valid."""
    runs = _opened(Refuses(*range(64)), fake)
    assert isinstance(_outcome(runs), ModelBroken)


def test_circuit_breaker_closes_with_the_first_probe_that_succeeds(fake, caplog):
    """A model that recovers gets batches again; all of this is in the log."""
    engine = Poisoned(*range(64))
    runs = _opened(engine, fake)
    engine.marks = ()
    assert isinstance(_outcome(runs), ModelBroken)
    fake.now += 1
    assert _outcome(runs) == [0]
    text = "model m version 1: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{text}a batch of 1: the model failed (ValueError)",
        *[f"{text}a batch of 1: the model failed (ValueError): a marked row"] * 2,
        f"{text}fails on everything; left alone: 1 s",
        f"{text}computes again",
    ]


def test_circuit_breaker_stays_closed_for_rows_at_fault(fake):
    """However many bad rows come, the model stays available: the probe succeeds."""
    engine = Poisoned(7.0)
    runs = _executor(engine, fake)
    for _ in range(10):
        assert isinstance(_outcome(runs, 7.0), ModelFailed)
        assert _outcome(runs, 1.0) == [1]
    assert len(engine.batches) == 20
    for _ in range(10):
        assert isinstance(_outcome(runs, 7.0), ModelFailed)


@pytest.mark.parametrize(
    "error", [Late("late"), OutOfDeviceMemory("full"), Unavailable("away")]
)
def test_circuit_breaker_ignores_errors_of_other_causes(fake, error):
    """A batch that failed for another reason does not reset the count of failures."""
    engine = Raises(ValueError())
    engine.poison = 0.0
    runs = _executor(engine, fake)
    for each in (ValueError(), ValueError(), error, ValueError()):
        engine.error = each
        run_batch(runs, 1)
    assert isinstance(_outcome(runs), ModelBroken)


def test_circuit_breaker_counts_a_probe_with_wrong_outputs_as_failed(fake):
    """A model that loses rows is broken, though it raises nothing."""
    runs = _executor(TooFewRows(), fake)
    for _ in range(3):
        assert isinstance(_outcome(runs), WrongOutputs)
    assert isinstance(_outcome(runs), ModelBroken)


def test_circuit_breaker_pauses_grow_to_half_a_minute(fake):
    """Each probe that fails doubles the pause, up to 30 seconds."""
    runs = _opened(Poisoned(*range(64)), fake)
    pauses = []
    for _ in range(7):
        pauses.append(_outcome(runs).retry_after_s)
        fake.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_circuit_breaker_pause_is_in_no_batch_time(fake):
    """The pause of a broken model does not count as time of a back-to-back batch."""
    engine = Poisoned(*range(64))
    runs = _opened(engine, fake)
    engine.marks = ()
    for _ in range(2):
        fake.now += 0.5
        runs.execute([JobSlice(job(1), 0, 1)], back_to_back=True)
    assert runs.times.expected_s(1) == 0.5


def test_circuit_breaker_probe_counts_as_a_running_batch(fake):
    """While the probe is in the engine, its rows and seconds are reported."""
    seen = []

    class Failing(Echo):
        def run(self, batch, signature_name):
            seen.append(runs.running())
            raise ValueError

    runs = _executor(Failing(), fake)
    for _ in range(3):
        run_batch(runs, 2)
    assert seen == [(2, 0.0)] * 3 + [(1, 0.0)]
    assert runs.running() is None
