"""Answers and deadlines of the inference requests on one event loop.

A timer for each request would cost an event loop more than a small model takes for a
row, and nearly all waits are short. So one sweep checks all deadlines, each 50 ms or at
the earliest deadline.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from app import telemetry
from app.batching.job import Job
from app.errors import Late, Unavailable
from app.memory import give_back

# From the second sweep on, a disconnect of the client is noticed.
_SWEEP_EVERY_S = 0.05
# Delay of a request's metrics. A write takes up to a millisecond, in which requests and
# the batching thread wait; 5 writes a second seldom delay one.
_FLUSH_AFTER_S = 0.2
# Bodies of the largest size whose memory all large requests may take together.
_LARGEST_BODIES = 16
# A request of so many bytes is worth the milliseconds of returning memory to the
# system, once for all that end within a second. Otherwise the heap keeps its peak.
_TRIMMED_BYTES = 4 << 20
_TRIM_AFTER_S = 1.0

_T = TypeVar("_T")


class EventLoop:
    """Waits on the event loop that runs when this object is made."""

    def __init__(self, request_timeout_s: float, max_body_bytes: int) -> None:
        """Store the limits of a request: its time, and the bytes of its body."""
        self.request_timeout_s = request_timeout_s
        # Bytes of large requests in memory, and their limit.
        self.holding = threading.RLock()
        self._held_bytes = 0
        self._max_held_bytes = _LARGEST_BODIES * max_body_bytes
        self._loop = asyncio.get_running_loop()
        self._answers: dict[Job, _Wait] = {}
        # Futures that are awaited until a deadline, and those past theirs.
        self._limited: dict[asyncio.Future[Any], float] = {}
        self._late: set[asyncio.Future[Any]] = set()
        # Time of the next sweep, on the monotonic clock.
        self._sweep_at = math.inf
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._flushing = self._trimming = False

    def hold(self, count: int) -> None:
        """Count bytes of a large request; a negative count releases them.

        Any thread may call it.

        Raises:
            Unavailable: large requests would exceed their memory.
        """
        with self.holding:
            if count > 0 and self._held_bytes + count > self._max_held_bytes:
                raise Unavailable(
                    f"large bodies in memory may have {self._max_held_bytes} bytes in "
                    "all"
                )
            self._held_bytes += count

    def trim_memory(self, count: int) -> None:
        """Return memory to the system soon, after a request of so many bytes."""
        if count >= _TRIMMED_BYTES and not self._trimming:
            self._trimming = True
            self._loop.call_later(_TRIM_AFTER_S, self._trim)

    def run_in_thread(self, function: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Call a function in a thread of the loop's default executor."""
        return self._loop.run_in_executor(None, function)

    def wake(self, jobs: Sequence[Job]) -> None:
        """Resume the requests of answered jobs; any thread may call this."""
        try:
            self._loop.call_soon_threadsafe(self._resolve, jobs)
        except RuntimeError:
            return  # The loop is closed, with all its requests.

    async def answered(
        self, job: Job, disconnected: Callable[[], "asyncio.Future[Any]"]
    ) -> None:
        """Wait until a job with this `wake` is answered; fail it at its deadline.

        In a long wait `disconnected` is called once; the future that it returns is
        cancelled at the end of the wait.
        """
        wait = self._answers[job] = _Wait(self._loop.create_future(), disconnected)
        try:
            # Checked after it is in the dictionary: the answer may come at any time.
            if not job.is_answered():
                self._sweep_by(job.deadline)
                await wait.future
        finally:
            self._answers.pop(job, None)
            if wait.watch is not None:
                wait.watch.cancel()

    async def by(self, deadline: float, future: "asyncio.Future[_T]") -> _T:
        """Return a future's result, awaited until a time on the monotonic clock.

        Raises:
            TimeoutError: it took longer, and is cancelled.
        """
        self._limited[future] = deadline
        self._sweep_by(deadline)
        try:
            return await future
        except asyncio.CancelledError:
            if future not in self._late:
                raise
            raise TimeoutError from None
        finally:
            self._late.discard(future)
            # An error's traceback has this frame, which must not have the error.
            del self._limited[future], future

    def flush_metrics(self) -> None:
        """Write the recorded metrics soon, those of many requests together."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_later(_FLUSH_AFTER_S, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        telemetry.flush()

    def _trim(self) -> None:
        self._trimming = False
        self.run_in_thread(give_back)

    def _resolve(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            wait = self._answers.pop(job, None)
            if wait is not None and not wait.future.done():
                wait.future.set_result(None)

    def _sweep_by(self, deadline: float) -> None:
        """Schedule a sweep at a deadline, or within 50 ms."""
        if self._sweep_at == math.inf or deadline < self._sweep_at:
            now = time.monotonic()
            self._sweep_at = min(deadline, now + _SWEEP_EVERY_S)
            # The event loop may count whole milliseconds.
            left_s = max(self._sweep_at - now, 0) + 0.001
            if self._sweep_timer is not None:
                # Each sweep schedules the next: two timers would never be one again.
                self._sweep_timer.cancel()
            self._sweep_timer = self._loop.call_later(left_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_at = math.inf
        now = time.monotonic()
        earliest = math.inf
        for future, deadline in self._limited.items():
            if deadline > now:
                earliest = min(earliest, deadline)
            elif not future.done():
                self._late.add(future)
                future.cancel()
        for job, wait in self._answers.items():
            if job.deadline > now:
                earliest = min(earliest, job.deadline)
                wait.seen_by_sweep()
            else:
                # Wakes this loop, unless another thread is answering and does so.
                job.fail(Late("no answer was ready before the request's deadline"))
        if earliest < math.inf:
            self._sweep_by(earliest)
        self.flush_metrics()


class _Wait:
    """One request's wait for its answer."""

    __slots__ = ("_disconnected", "_seen", "future", "watch")

    def __init__(
        self,
        future: "asyncio.Future[None]",
        disconnected: Callable[[], "asyncio.Future[Any]"],
    ) -> None:
        self.future = future
        self.watch: asyncio.Future[Any] | None = None
        self._disconnected = disconnected
        self._seen = False

    def seen_by_sweep(self) -> None:
        """Watch for a disconnect from the second sweep on."""
        if self._seen and self.watch is None:
            self.watch = self._disconnected()
        self._seen = True
