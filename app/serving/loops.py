"""The event loop of a process: its calls, and their end when the process stops."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from app.serving.loop_calls import Answer, LoopCalls
from app.serving.predictor import Predictor

# Threads of requests that only read.
_READ_THREADS = 2


class Loops:
    """Makes the calls of the event loop that runs, which all of its rims share."""

    def __init__(
        self,
        predictor: Predictor,
        answer: Answer,
        close: Callable[..., None],
    ) -> None:
        """Store the parts.

        `answer` answers calls that predict nothing, and `close(timeout_s=...)` fails
        all jobs that still wait. A test may set another `clock` before the first call.
        """
        self._predictor = predictor
        self._answer = answer
        self._close = close
        self._calls: LoopCalls | None = None
        self.clock: Callable[[], float] = time.monotonic
        self.readers = ThreadPoolExecutor(_READ_THREADS, "reading")

    def loop_calls(self) -> LoopCalls:
        """Return the calls of the event loop that runs."""
        if self._calls is None:
            self._calls = LoopCalls(
                self._predictor, self._answer, self.readers, self.clock
            )
        return self._calls

    async def close_calls(self) -> None:
        """Have all calls that still wait for a model answered with 503."""
        close = partial(self._close, timeout_s=0)
        await asyncio.get_running_loop().run_in_executor(self.readers, close)
