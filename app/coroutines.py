"""How a coroutine is run without an event loop of Python's."""

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def completed(line: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine returns that never suspends."""
    try:
        line.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise RuntimeError("it waits for an event loop, and there is none")


@coroutine
def until(wanted: Any) -> Generator[Any, Any, Any]:
    """Suspend, and tell whoever runs the coroutine what it waits for."""
    return (yield wanted)


async def elsewhere(function: Callable[[], _T]) -> _T:
    """What a function returns that is to be called in another thread.

    Whoever runs the coroutine gets the function, has it called, and sends or throws in
    what comes of it.
    """
    result: _T = await until(function)
    return result
