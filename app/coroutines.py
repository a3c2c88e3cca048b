"""Run coroutines without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def completed(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of a coroutine that never suspends.

    Raises:
        RuntimeError: it suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise RuntimeError("the coroutine awaits an event loop, and there is none")
