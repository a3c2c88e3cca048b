"""An inference request on an event loop, whatever protocol brought it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from app.api.environ import Environ
from app.api.event_loop import EventLoop
from app.api.exchange import Exchange, Threads
from app.batching.job import Answer, Job
from app.errors import Late
from app.settings.model_files import SERVICE_FILE

# Bodies up to this size are not counted: the number of connections bounds them.
SMALL_BODY_BYTES = 64 << 10

_T = TypeVar("_T")


class LoopExchange(Exchange):
    """One request, which occupies no thread while it waits.

    Call `close` at its end.
    """

    __slots__ = ("_disconnects", "_held_bytes", "_loop", "_most_bytes")

    def __init__(self, environ: Environ, loop: EventLoop) -> None:
        """Store the WSGI environment, and the waits of the event loop."""
        super().__init__(environ)
        self.wake = loop.wake
        self._loop = loop
        # Bytes that are counted as a large request's, now and at most so far.
        self._held_bytes = self._most_bytes = 0
        # Not empty once the client has disconnected.
        self._disconnects: list[None] = []

    def close(self) -> None:
        """End the request: its memory is released, its metrics are written."""
        if self._most_bytes:
            self.hold(0)
            self._loop.trim_memory(self._most_bytes)
        self._loop.flush_metrics()

    def hold(self, count: int) -> None:
        """Count the bytes of a large request; see Exchange."""
        if count <= SMALL_BODY_BYTES:
            count = 0
        if count != self._held_bytes:
            self._loop.hold(count - self._held_bytes)
            self._held_bytes = count
            self._most_bytes = max(self._most_bytes, count)

    async def offload(
        self, function: Callable[[], _T], threads: Threads | None = None
    ) -> _T:
        """Call a function in a thread, as it would block the event loop.

        A disconnect of the client is noticed meanwhile, before its rows have run.
        """
        watch = self.disconnected() if self.job is None else None
        try:
            if threads is None:
                return await self._loop.run_in_thread(function)
            running = self._loop.run_in(threads, function)
            await self._loop.by(self.deadline, running)
            return running.result()
        except TimeoutError:
            raise Late(f"{SERVICE_FILE} did not return by the deadline") from None
        finally:
            if watch is not None:
                watch.cancel()

    async def answered(self, job: Job) -> Answer:
        """Return the job's answer, or raise what `job.wait` raises."""
        try:
            await self._loop.answered(job, self.disconnected)
        except BaseException:
            # Cancelled: its rows need not run any more.
            self._disconnects.append(None)
            raise
        return job.wait()

    def is_gone(self) -> Callable[[], bool]:
        """Return a check whether the client disconnected."""
        # A reference to this exchange, which has the job, would be a cycle.
        return partial(bool, self._disconnects)

    def disconnected(self) -> "asyncio.Future[Any]":
        """Return a future of the client's disconnect, which `is_gone` then reports."""
        raise NotImplementedError
