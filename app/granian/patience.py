"""Waits on an event loop that cost next to nothing as long as they are short."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

# Undoes what was done for a wait that became long.
Undo = Callable[[], object]

# A wait of so many seconds, or up to twice as many, is a long one.
_LOOK_EVERY_S = 0.05


class Patience:
    """Tells waits that become long, so that the others need no timer of their own.

    A request waits twice, and nearly always shortly. To set and cancel a timer costs an
    event loop many times what an entry in a dictionary does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the loop; all else here runs on it."""
        self._loop = loop
        # What each wait calls if it becomes long, for those that have begun newly.
        self._short: dict[Any, Callable[[], Undo]] = {}
        self._long: dict[Any, Undo] = {}
        self._looks = False

    async def wait(
        self, future: Any, until: float, becomes_long: Callable[[], Undo]
    ) -> Any:
        """A future's result; `becomes_long` is called should it take its time.

        It is called in time to do something about `until`, on the monotonic clock, and
        what it returns is called at the end of the wait.
        """
        if until - time.monotonic() < 2 * _LOOK_EVERY_S:
            self._long[future] = becomes_long()
        else:
            self._short[future] = becomes_long
            if not self._looks:
                self._look_later()
        try:
            return await future
        finally:
            if self._short.pop(future, None) is None:
                self._long.pop(future)()

    def at(self, when: float, callback: Callable[[], object]) -> Undo:
        """Call this at a time on the monotonic clock, unless it is undone."""
        # The loop may have another clock, in whole milliseconds.
        left_s = max(when - time.monotonic(), 0) + 0.001
        return self._loop.call_later(left_s, callback).cancel

    def _look_later(self) -> None:
        self._looks = True
        self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        began, self._short = self._short, {}
        self._looks = False
        for future, becomes_long in began.items():
            self._long[future] = becomes_long()
