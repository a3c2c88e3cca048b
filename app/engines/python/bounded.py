"""Calls of the user's own code that must not hold up the loads of other models."""

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from app.errors import ModelLoadError
from app.settings.model_files import SERVICE_FILE

# Weights may come from a slow network; what takes longer will not end.
LONGEST_S = 600.0
_T = TypeVar("_T")
# Get a call's result, and what it raised or None.
_Results: TypeAlias = queue.SimpleQueue[list[Any]]
_Calls: TypeAlias = queue.SimpleQueue[tuple[Callable[[], Any], _Results]]
# The calls of each idle thread. The C library gives each thread a heap, whose free end
# stays with it: with a thread for each call, nearly each heap kept room for a version.
_idle: deque[_Calls] = deque()


def bounded(function: Callable[[], _T], what: str) -> _T:
    """Return what a function returns within ten minutes, in a thread for such calls.

    The thread of one that never returns stays until the process ends.

    Raises:
        ModelLoadError: it has not returned; the text has `what`.
        BaseException: whatever it raises.
    """
    results: _Results = queue.SimpleQueue()
    try:
        calls = _idle.pop()
    except IndexError:
        calls = queue.SimpleQueue()
        thread = threading.Thread(
            target=_work, args=(calls,), name="service load", daemon=True
        )
        thread.start()
    calls.put((function, results))
    try:
        found = results.get(timeout=LONGEST_S)
    except queue.Empty:
        raise ModelLoadError(
            f"{SERVICE_FILE}: {what} has not returned within {LONGEST_S:.0f} s"
        ) from None
    result: _T
    result, error = found
    # The thread has the list for a moment longer, and must not keep a version with it.
    found.clear()
    if error is not None:
        raise error
    return result


def _work(calls: _Calls) -> None:
    while True:
        function, results = calls.get()
        result = error = None
        try:
            result = function()
        except BaseException as raised:  # handed to the caller
            error = raised
        # Before the result, which the next call may follow at once.
        _idle.append(calls)
        found = [result, error]
        # They would keep the version until the next call.
        del function, result, error
        results.put(found)
        del results, found
