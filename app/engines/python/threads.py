"""Threads for functions of a service.py, which may never return."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

# As many calls as may wait for something else, such as a disk, at a time.
_THREADS = 32
_P = ParamSpec("_P")
_T = TypeVar("_T")


class ServiceThreads(ThreadPoolExecutor):
    """An executor that knows for how long no thread of it has been idle."""

    def __init__(self, threads: int = _THREADS) -> None:
        """Start no thread yet."""
        super().__init__(threads, "service")
        self._threads_in_all = threads
        # When each call that runs began, on the monotonic clock.
        self._began_at: dict[object, float] = {}

    def submit(
        self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "Future[_T]":
        """Call a function in a thread."""
        began_at = self._began_at

        def call() -> _T:
            key = object()
            began_at[key] = time.monotonic()
            try:
                return fn(*args, **kwargs)
            finally:
                del began_at[key]

        return super().submit(call)

    def stuck_s(self) -> float:
        """Return for how many seconds all threads have run the same calls, else 0."""
        began_at = list(self._began_at.values())
        if len(began_at) < self._threads_in_all:
            return 0.0
        return time.monotonic() - max(began_at)
