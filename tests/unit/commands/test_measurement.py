"""Measuring how long batches take."""

import pytest

from app.commands.measurement import median_ms, rested_ms


@pytest.mark.parametrize(
    ("took_s", "runs"),
    [(0.001, 15), (0.25, 8), (10.0, 3)],
    ids=["maximum runs", "two seconds", "minimum runs"],
)
def test_slow_batches_are_measured_fewer_times(took_s, runs):
    """A warm-up is followed by two seconds of runs, but 3 to 15 of them."""
    now = 0.0
    calls = 0

    def run():
        nonlocal now, calls
        calls += 1
        # Set-up by the first run.
        now += took_s if calls > 1 else 100

    assert median_ms(run, lambda: now) == pytest.approx(took_s * 1000)
    assert calls == runs + 1


def test_median_ignores_one_slow_run():
    """One slow run among many changes nothing."""
    now = 0.0
    times_s = iter([0, 0.01, 0.5, *[0.01] * 20])

    def run():
        nonlocal now
        now += next(times_s)

    assert median_ms(run, lambda: now) == pytest.approx(10)


def test_rested_runs_follow_a_rest_that_is_not_in_their_time():
    """Each duration of a run after 0.2 s of rest is that of the run itself."""
    now, rests_s = 0.0, []
    times_s = [0.03] * 24 + [0.09]
    left_s = iter(times_s)

    def run():
        nonlocal now
        now += next(left_s)

    def sleep(seconds):
        nonlocal now
        rests_s.append(seconds)
        now += seconds

    rested = rested_ms(run, lambda: now, sleep)
    assert rested == pytest.approx([1000 * each for each in times_s])
    assert set(rests_s) == {0.2}
