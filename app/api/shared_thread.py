"""An inference request on a thread that has other requests to see to."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from app.api.environ import Environ
from app.api.exchange import Exchange
from app.coroutines import elsewhere, until
from app.serving.job import Answer, Job, Wake
from app.serving.runner import Runner

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SharedThreadExchange(Exchange):
    """One request that never keeps its thread waiting.

    Its coroutine suspends with what it waits for: a submitted Job, to be resumed when
    that is told or late, or a function to be called in another thread, where it may go
    on.
    An event loop of Python's has ways of its own to wait for these.
    """

    __slots__ = ()

    def __init__(self, environ: Environ, wake: Wake) -> None:
        """Note when it arrives; `wake` is told of answered jobs, from any thread."""
        super().__init__(environ)
        self.wake = wake

    async def work(
        self,
        quick: bool,
        function: Callable[_P, _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call what is quick at once, and all else in another thread."""
        if quick:
            return function(*args, **kwargs)
        return await self._compute(partial(function, *args, **kwargs))

    async def submit(self, runner: Runner, job: Job) -> None:
        """Submit a job, in another thread if its model runs there."""
        if runner.runs_in_submit:
            await self._block(partial(runner.submit, job))
        else:
            runner.submit(job)

    async def answered(self, job: Job) -> Answer:
        """The answer, or what `job.wait` raises."""
        await until(job)
        return job.wait()

    def _compute(self, function: Callable[[], _T]) -> Awaitable[_T]:
        """Call a function that keeps a processor busy."""
        return elsewhere(function)

    def _block(self, function: Callable[[], _T]) -> Awaitable[_T]:
        """Call a function that may wait for something."""
        return elsewhere(function)
