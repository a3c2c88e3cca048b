"""The event loop of a process: its calls, and their end when the process stops."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from app.repository.loader import Loader
from app.serving.loop_calls import Answer, LoopCalls
from app.serving.predictor import Predictor
from app.shared_model.remote_loader import RemoteLoader

# Threads of requests that only read.
_READ_THREADS = 2


class Loops:
    """Makes the calls of the event loop that runs, which all of its rims share."""

    def __init__(
        self,
        predictor: Predictor,
        answer: Answer,
        loader: Loader | RemoteLoader,
    ) -> None:
        """Store the parts.

        `answer` answers calls that predict nothing. A test may set another `clock`
        before the first call.
        """
        self._predictor = predictor
        self._answer = answer
        self._loader = loader
        self._calls: LoopCalls | None = None
        self.clock: Callable[[], float] = time.monotonic
        self.readers = ThreadPoolExecutor(_READ_THREADS, "reading")

    def loop_calls(self) -> LoopCalls:
        """Return the calls of the event loop that runs."""
        if self._calls is None:
            if isinstance(self._loader, RemoteLoader):
                self._loader.attach(asyncio.get_running_loop())
            self._calls = LoopCalls(
                self._predictor, self._answer, self.readers, self.clock
            )
        return self._calls

    async def close_calls(self) -> None:
        """Have all calls that still wait for a model answered with 503."""
        close = partial(self._loader.close, timeout_s=0)
        await asyncio.get_running_loop().run_in_executor(self.readers, close)
