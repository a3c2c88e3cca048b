"""Calls of the user's own code in its threads, for requests on an event loop."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from app.api.exchange import Threads
from app.batching.job import Job, Wake

_T = TypeVar("_T")


def run_in(threads: Threads, function: Callable[[], _T]) -> "asyncio.Future[_T]":
    """Call a function in one of these threads, unless the future is canceled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    threads.submit(partial(_call, loop, future, function))
    return future


def run_around(
    threads: Threads,
    before: Callable[[Wake], Job | None],
    after: Callable[[Job], _T],
) -> "asyncio.Future[_T | None]":
    """Call `before` and, once the job that it returns is answered, `after`.

    Both in these threads, unless the future is canceled. `before` submits the job, and
    sets its `wake` to what it is given; if it returns None, so does the future.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T | None] = loop.create_future()
    # Emptied, so that the job, which has `wake`, is in no reference cycle.
    rest = [partial(_call, loop, future, after)]

    def wake(jobs: Sequence[Job]) -> None:
        call = partial(rest.pop(), *jobs)
        if not threads.submit_if_idle(call):
            # The batching thread, which may be here, must not wait for a new thread.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(threads.submit, call)

    def begin() -> Job | None:
        try:
            return before(wake)
        except BaseException:
            rest.clear()
            raise

    threads.submit(partial(_call, loop, future, begin))
    return future


def _call(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Any]",
    function: Callable[..., object],
    *args: Job,
) -> None:
    """Call a function for a future; a job is no result yet."""
    if future.cancelled():
        return
    try:
        result = function(*args)
        if isinstance(result, Job):
            return
        settle = partial(_settle, future, result, None)
    except BaseException as error:
        settle = partial(_settle, future, None, error)
    # The loop may be closed, with all its requests.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
    # An error's traceback has this frame, which must not have the error.
    del future, settle


def _settle(
    future: "asyncio.Future[Any]", result: object, error: BaseException | None
) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
