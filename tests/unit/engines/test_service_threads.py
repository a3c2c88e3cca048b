"""The threads of a service.py, and for how long none of them has been idle."""

import threading

from app.engines.python.threads import ServiceThreads
from tests.support.clocks import standing_clock

MODULE = "app.engines.python.threads"


def test_threads_are_stuck_since_the_last_one_became_busy(monkeypatch):
    """One idle thread is enough to make progress."""
    clock = standing_clock(monkeypatch, MODULE)
    began, ends = threading.Semaphore(0), threading.Event()

    def call(place):
        began.release()
        ends.wait()
        return place

    with ServiceThreads(2) as threads:
        calls = []
        for place, stuck_s in ((0, 0.0), (1, 5.0)):
            calls.append(threads.submit(call, place))
            assert began.acquire(timeout=10)
            clock.now += 5
            assert threads.stuck_s() == stuck_s
        ends.set()
        assert [each.result(10) for each in calls] == [0, 1]
        assert threads.stuck_s() == 0.0
