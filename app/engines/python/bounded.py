"""Calls of the user's own code that must not hold up the loads of other models."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from app.errors import ModelLoadError
from app.settings.model_files import SERVICE_FILE

# Weights may come from a slow network; what takes longer will not end.
_LONGEST_S = 600.0
_T = TypeVar("_T")


def bounded(function: Callable[[], _T], what: str) -> _T:
    """Return what a function returns within ten minutes, in a thread of its own.

    The thread of one that never returns stays until the process ends.

    Raises:
        ModelLoadError: it has not returned; the text has `what`.
        BaseException: whatever it raises.
    """
    results: queue.SimpleQueue[tuple[_T | None, BaseException | None]]
    results = queue.SimpleQueue()

    def call() -> None:
        try:
            results.put((function(), None))
        except BaseException as error:  # handed to the caller
            results.put((None, error))

    threading.Thread(target=call, name="service load", daemon=True).start()
    try:
        result, error = results.get(timeout=_LONGEST_S)
    except queue.Empty:
        raise ModelLoadError(
            f"{SERVICE_FILE}: {what} has not returned within {_LONGEST_S:.0f} s"
        ) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
