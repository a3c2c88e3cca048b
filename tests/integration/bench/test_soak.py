"""The soak, a while of it, and broken servers that it catches sooner."""

import pytest

from bench.reliability.soak import soak
from testing.broken import app_with


def broken(report):
    """What was not held, after the whole table was shown to whoever reads a failure."""
    print(report.markdown())
    return report.broken()


def test_a_while_of_everything():
    """Each request gets its own answer, and nothing is left behind."""
    assert broken(soak(seconds=15, growth=0.05, rate=40)) == []


@pytest.mark.parametrize("fault", ["swaps", "loses"])
def test_answers_that_are_swapped_or_lost_are_caught(fault):
    """Two answers in each other's place, or one that never comes, are found out."""
    report = soak(seconds=4, app=app_with(fault))
    assert "requests without their own answer" in broken(report)


def test_leaks_are_caught():
    """Memory, threads and descriptors that are left behind are found out each."""
    report = soak(seconds=9, app=app_with("leaks"))
    assert broken(report) == [
        "memory after the warm-up",
        "threads after the warm-up",
        "descriptors after the warm-up",
    ]
