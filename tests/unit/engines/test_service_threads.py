"""The threads of a service.py, and for how long none of them has been idle."""

import gc
import sys
import threading

from app.engines.python.threads import ServiceThreads
from testing.server import wait_until
from tests.support.clocks import standing_clock

MODULE = "app.engines.python.threads"
TIMEOUT_S = 10


def test_threads_are_stuck_since_the_last_one_became_busy(monkeypatch):
    """One idle thread is enough to make progress."""
    clock = standing_clock(monkeypatch, MODULE)
    began, ends = threading.Semaphore(0), threading.Event()
    ended = threading.Semaphore(0)

    def call():
        began.release()
        ends.wait(TIMEOUT_S)
        ended.release()

    threads = ServiceThreads(2)
    for stuck_s in (0.0, 5.0):
        threads.submit(call)
        assert began.acquire(timeout=TIMEOUT_S)
        clock.now += 5
        assert threads.stuck_s() == stuck_s
    threads.submit(call)
    ends.set()
    for _ in range(3):
        assert ended.acquire(timeout=TIMEOUT_S)
    last = threading.Event()
    threads.submit(last.set)
    assert last.wait(TIMEOUT_S)


def test_thread_that_is_idle_takes_the_next_call():
    """No more threads are started than calls wait at a time."""
    pool, idents = ServiceThreads(), set()

    def note():
        idents.add(threading.get_ident())

    pool.submit(note)
    for _ in range(5):
        # The thread is idle a moment after its call.
        wait_until(lambda: pool.submit_if_idle(note), TIMEOUT_S, lambda: "none is idle")
    wait_until(lambda: idents, TIMEOUT_S, lambda: "no call was made")
    assert len(idents) == 1


def test_idle_threads_are_counted_under_contention():
    """However the threads interleave, each idle one takes a call, and no busy one."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        pools = [_contended(ServiceThreads(2)) for _ in range(12)]
    finally:
        sys.setswitchinterval(interval_s)
    for pool in pools:
        ends = threading.Event()
        try:
            for _ in range(2):
                wait_until(
                    lambda: pool.submit_if_idle(ends.wait),  # noqa: B023
                    TIMEOUT_S,
                    lambda: "none is idle",
                )
            assert not pool.submit_if_idle(print)
        finally:
            ends.set()


def _contended(pool):
    """Have threads become idle, and take the next call, at the same time."""
    ran = threading.Semaphore(0)
    for number in range(7_000):
        pool.submit(ran.release)
        if number % 7 == 0:
            assert ran.acquire(timeout=TIMEOUT_S)
    return pool


def test_threads_end_with_the_last_reference():
    """Calls that were submitted before are made."""
    threads, both, started = ServiceThreads(), threading.Barrier(3), []

    def call():
        started.append(threading.current_thread())
        both.wait(TIMEOUT_S)

    for _ in range(2):
        threads.submit(call)
    both.wait(TIMEOUT_S)
    del threads
    gc.collect()
    for thread in started:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def test_calls_wait_where_the_system_has_no_more_threads(monkeypatch):
    """The submit does not fail, and the next thread takes what waits."""
    pool, ran = ServiceThreads(), threading.Semaphore(0)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(40):
            pool.submit(ran.release)
    assert not pool.submit_if_idle(ran.release)
    pool.submit(ran.release)
    for _ in range(41):
        assert ran.acquire(timeout=TIMEOUT_S)
