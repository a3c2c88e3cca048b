"""A short soak of a sound server, and of servers with faults."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.reliability.soak import soak
from testing.broken import app_with


def broken(report):
    """Print the table for readers of a failure, and return the broken promises."""
    print(report.markdown())
    return report.broken()


@pytest.fixture(name="reports", scope="module")
def _reports():
    """Reports by fault, of soaks at the same time: they wait more than they compute."""
    seconds = {"swaps": 4, "loses": 4, "leaks": 9}
    with ThreadPoolExecutor(1 + len(seconds)) as pool:
        running = {
            fault: pool.submit(soak, seconds=each, app=app_with(fault))
            for fault, each in seconds.items()
        }
        running["none"] = pool.submit(soak, seconds=15, growth=0.05, rate=40)
    return {fault: each.result() for fault, each in running.items()}


def test_short_soak_keeps_all_promises(reports):
    """Each request gets its own answer, and nothing leaks."""
    assert broken(reports["none"]) == []


@pytest.mark.parametrize("fault", ["swaps", "loses"])
def test_swapped_and_lost_answers_are_caught(reports, fault):
    """Swapped answers, and an answer that never comes, break the promise."""
    assert "requests without their own answer" in broken(reports[fault])


def test_leaks_are_caught(reports):
    """Leaks of memory, threads and descriptors break a promise each."""
    assert broken(reports["leaks"]) == [
        "memory after the warm-up",
        "threads after the warm-up",
        "descriptors after the warm-up",
    ]
