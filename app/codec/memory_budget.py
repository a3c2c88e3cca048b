"""A bound on the memory that decoding takes, over all request threads."""

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from app.codec.bounds import Check, unchecked
from app.errors import Unavailable
from app.memory import give_back

# Above this, returning freed memory to the system is worth its milliseconds.
_LARGE = 4_000_000
# Threads that wait at a time, as each is one of the few that decode for all clients.
_MAX_WAITING = 8
# Delay after which a waiting thread notices that its client disconnected.
_CHECK_EVERY_S = 0.1


class MemoryBudget:
    """A number of bytes, of which each decoding thread reserves its part.

    Small parts hardly ever wait; large ones are decoded one after another.
    """

    def __init__(
        self,
        amount: int,
        timeout_s: float,
        what: str,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        """Store the budget, and the longest wait of how many threads.

        `what` is decoded, for the error.
        """
        self._free = amount
        self._timeout_s = timeout_s
        self._what = what
        self._max_waiting = max_waiting
        self._waiting = 0
        self._released = threading.Condition()

    @contextmanager
    def reserve(self, amount: int, check: Check = unchecked) -> Iterator[None]:
        """Reserve an amount, at most the whole budget, until the block ends.

        What the block allocates belongs to functions that it calls: when it raises an
        error, their variables are freed before the amount is.

        Raises:
            Unavailable: not enough was released within the timeout, or too many
                threads wait already.
            BasketError: `check`, which is called while waiting, raised it.
        """
        with self._released:
            self._wait_for(amount, check)
            self._free -= amount
        try:
            yield
        except BaseException as error:
            _free_variables(error)
            raise
        finally:
            with self._released:
                self._free += amount
                self._released.notify_all()
            if amount > _LARGE:
                # Otherwise each thread's heap keeps the size of its largest one:
                # gigabytes in all.
                give_back()

    def _wait_for(self, amount: int, check: Check) -> None:
        """Wait until the amount is free; the condition's lock is held."""
        if self._free >= amount:
            return
        if self._waiting >= self._max_waiting:
            raise Unavailable(f"too many {self._what} at once")
        give_up_at = time.monotonic() + self._timeout_s
        self._waiting += 1
        try:
            while self._free < amount:
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    raise Unavailable(
                        f"too many {self._what} at once", round(self._timeout_s)
                    )
                self._released.wait(min(left_s, _CHECK_EVERY_S))
                check()
        finally:
            self._waiting -= 1


def _free_variables(error: BaseException | None) -> None:
    """Clear the frames of functions that raised an error, and those it replaced."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
