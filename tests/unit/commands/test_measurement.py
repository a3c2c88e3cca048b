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


@pytest.mark.parametrize(
    ("took_s", "runs"), [(0.03, 10), (0.5, 6), (10.0, 2)], ids=["fast", "slow", "crawl"]
)
def test_rested_runs_follow_two_rests_that_are_not_in_their_time(took_s, runs):
    """Each time is that of the run itself; slow models run fewer times."""
    now, before_s, after_s = 0.0, 0.0, 0.0

    def run():
        nonlocal now, before_s
        # Each of the last two rests adds a tenth of itself.
        now += took_s + (before_s + after_s) / 10
        before_s = after_s

    def sleep(seconds):
        nonlocal now, after_s
        after_s = seconds
        now += seconds

    rested = rested_ms(run, lambda: now, sleep)
    assert set(rested) == {0.0, 0.02, 0.05, 0.1, 0.4, 1.6}
    for rest_s, found_ms in rested.items():
        assert found_ms == pytest.approx([1000 * took_s + 200 * rest_s] * runs)
