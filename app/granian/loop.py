"""What all requests on Granian's event loop share."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from app.granian.patience import Patience, Undo
from app.serving.job import Job

# Threads for what waits, for a model or for Flask, each made when it is first needed.
_THREADS = 64
# For what Flask answers without delay, however busy the others are.
_QUICK_THREADS = 4
# For what computes: more would only take turns.
_COMPUTING_THREADS = max(len(os.sched_getaffinity(0)), 2)

_T = TypeVar("_T")


class Loop:
    """An event loop, the threads beside it, and the jobs that are waited for on it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request_timeout_s: float
    ) -> None:
        """Store the loop, and the time for a request."""
        self.request_timeout_s = request_timeout_s
        self.patience = Patience(loop)
        self._loop = loop
        self._waiting: dict[Job, asyncio.Future[None]] = {}
        self._computing = ThreadPoolExecutor(_COMPUTING_THREADS, "compute")
        self._blocking = ThreadPoolExecutor(_THREADS, "block")
        self._quick = ThreadPoolExecutor(_QUICK_THREADS, "quick")

    def compute(self, function: Callable[[], _T]) -> "asyncio.Future[_T]":
        """Call a function that keeps a processor busy."""
        return self._loop.run_in_executor(self._computing, function)

    def block(self, function: Callable[..., _T], *args: Any) -> "asyncio.Future[_T]":
        """Call a function that may wait for something."""
        return self._loop.run_in_executor(self._blocking, function, *args)

    def block_shortly(
        self, function: Callable[..., _T], *args: Any
    ) -> "asyncio.Future[_T]":
        """Call a function that waits for no model and no client."""
        return self._loop.run_in_executor(self._quick, function, *args)

    def wake(self, jobs: Sequence[Job]) -> None:
        """Tell who waits for these answered jobs; from any thread."""
        self._loop.call_soon_threadsafe(self._resolve, jobs)

    async def told(
        self, job: Job, becomes_long: Callable[["asyncio.Future[None]"], Undo]
    ) -> None:
        """Wait until a job's answer is told, or something else resolves the future.

        That future is given to `becomes_long`, if it is waited for long.
        """
        future = self._waiting[job] = self._loop.create_future()
        try:
            # Not before it is in the dictionary: it may be told at any time.
            if not job.is_told():
                await self.patience.wait(
                    future, job.deadline, lambda: becomes_long(future)
                )
        finally:
            self._waiting.pop(job, None)

    def _resolve(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            future = self._waiting.pop(job, None)
            if future is not None and not future.done():
                future.set_result(None)
