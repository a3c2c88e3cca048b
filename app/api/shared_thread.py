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
    """One request that never keeps its thread waiting; `aside` and `answered` say how.

    What those do while they wait depends on the server.
    """

    __slots__ = ()

    def __init__(self, environ: Environ, wake: Wake) -> None:
        """Note when it arrives; `wake` is told of answered jobs, from any thread."""
        super().__init__(environ)
        self.wake = wake

    def aside(self, function: Callable[[], _T], *, computes: bool) -> Awaitable[_T]:
        """Call a function in another thread; unless it computes, it may wait."""
        raise NotImplementedError

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
        return await self.aside(partial(function, *args, **kwargs), computes=True)

    async def submit(self, runner: Runner, job: Job) -> None:
        """Submit a job, in another thread if its model runs there."""
        if runner.runs_in_submit:
            await self.aside(partial(runner.submit, job), computes=False)
        else:
            runner.submit(job)


class SuspendedExchange(SharedThreadExchange):
    """One whose coroutine suspends with what it waits for.

    That is a submitted Job, to be resumed when it is told or late, or a function to be
    called in another thread, where the coroutine may go on.
    """

    __slots__ = ()

    def aside(self, function: Callable[[], _T], *, computes: bool) -> Awaitable[_T]:
        """Call a function in another thread."""
        return elsewhere(function)

    async def answered(self, job: Job) -> Answer:
        """The answer, or what `job.wait` raises."""
        await until(job)
        return job.wait()
