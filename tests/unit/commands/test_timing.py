"""Batch sizes, and how long batches take."""

import pytest

from app.commands.timing import median_ms
from app.engines.jax.batch_sizes import batch_sizes


@pytest.mark.parametrize(
    ("most", "allowed", "sizes"),
    [
        (1, (), [1]),
        (2, (), [1, 2]),
        (64, (), [1, 2, 4, 8, 16, 32, 64]),
        (48, (), [1, 2, 4, 8, 16, 32, 48]),
        (48, (6, 48), [6, 48]),
    ],
)
def test_sizes(most, allowed, sizes):
    """Sizes double up to the largest, unless only some are allowed."""
    assert list(batch_sizes(most, allowed)) == sizes


@pytest.mark.parametrize(
    ("took_s", "runs"),
    [(0.001, 15), (0.25, 8), (10.0, 3)],
    ids=["the most", "for two seconds", "the least"],
)
def test_a_slow_batch_is_timed_less_often(took_s, runs):
    """Runs go on for two seconds, within 3 to 15; the first does not count."""
    now = 0.0
    calls = 0

    def run():
        nonlocal now, calls
        calls += 1
        # Whatever the first run has to set up.
        now += took_s if calls > 1 else 100

    assert median_ms(run, lambda: now) == pytest.approx(took_s * 1000)
    assert calls == runs + 1


def test_the_median_leaves_out_a_slow_moment():
    """One slow run among many changes nothing."""
    now = 0.0
    times_s = iter([0, 0.01, 0.5, *[0.01] * 20])

    def run():
        nonlocal now
        now += next(times_s)

    assert median_ms(run, lambda: now) == pytest.approx(10)
