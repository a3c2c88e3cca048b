"""Threads for functions of a service.py, which may never return.

Not a ThreadPoolExecutor, whose futures an event loop has to wrap in its own:
docs/decisions.md (Threads of service.py) has the figures. Daemons, so that the process
can end although a call never does.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

# As many calls as may wait for something else, such as a disk, at a time.
_THREADS = 32
_Call = Callable[[], object]


class ServiceThreads:
    """A pool of threads, which ends with the last reference to it."""

    def __init__(self, threads: int = _THREADS) -> None:
        """Start no thread yet."""
        self._most = threads
        self._started = 0
        self._starting = threading.Lock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._spare = _Spare()
        # When each call that runs began, on the monotonic clock.
        self._began_at: dict[object, float] = {}
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, call: _Call) -> None:
        """Call a function, which raises nothing, in a thread."""
        spare = self._spare
        with spare.lock:
            spare.count -= 1
            is_short = spare.count < 0
        self._calls.put(call)
        if is_short:
            self._start_thread()

    def submit_if_idle(self, call: _Call) -> bool:
        """Call a function in a thread that is idle now; return False if none is.

        This takes no longer than a thread's wake-up.
        """
        spare = self._spare
        with spare.lock:
            if spare.count <= 0:
                return False
            spare.count -= 1
        self._calls.put(call)
        return True

    def _start_thread(self) -> None:
        with self._starting:
            if self._started == self._most:
                return
            # The thread must not keep this object.
            parts = self._calls, self._spare, self._began_at
            thread = threading.Thread(
                target=_work, args=parts, name="service", daemon=True
            )
            # The system may have no more threads; those that there are take the call.
            with suppress(RuntimeError):
                thread.start()
                self._started += 1

    def stuck_s(self) -> float:
        """Return for how many seconds all threads have run the same calls, else 0."""
        began_at = list(self._began_at.values())
        if len(began_at) < self._most:
            return 0.0
        return time.monotonic() - max(began_at)


class _Spare:
    """How many threads are idle, less the calls that wait for one.

    Not a semaphore of `threading`, which takes ten times as long.
    """

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0


def _work(
    calls: "queue.SimpleQueue[_Call | None]",
    spare: _Spare,
    began_at: dict[object, float],
) -> None:
    key = object()
    while True:
        with spare.lock:
            spare.count += 1
        call = calls.get()
        if call is None:
            # For the next thread.
            calls.put(None)
            return
        began_at[key] = time.monotonic()
        call()
        del began_at[key], call
