"""A short soak of a sound server, and of servers with faults."""

import pytest

from bench.reliability.soak import soak
from testing.broken import app_with


def broken(report):
    """Print the table for readers of a failure, and return the broken promises."""
    print(report.markdown())
    return report.broken()


def test_short_soak_keeps_all_promises():
    """Each request gets its own answer, and nothing leaks."""
    assert broken(soak(seconds=15, growth=0.05, rate=40)) == []


@pytest.mark.parametrize("fault", ["swaps", "loses"])
def test_swapped_and_lost_answers_are_caught(fault):
    """Swapped answers, and an answer that never comes, break the promise."""
    report = soak(seconds=4, app=app_with(fault))
    assert "requests without their own answer" in broken(report)


def test_leaks_are_caught():
    """Leaks of memory, threads and descriptors break a promise each."""
    report = soak(seconds=9, app=app_with("leaks"))
    assert broken(report) == [
        "memory after the warm-up",
        "threads after the warm-up",
        "descriptors after the warm-up",
    ]
