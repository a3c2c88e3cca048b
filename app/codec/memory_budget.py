"""A bound on the memory that decoding takes, over all request threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Unavailable
from app.memory import give_back

# Above this, returning freed memory to the system is worth its milliseconds.
_LARGE = 4_000_000


class MemoryBudget:
    """A number of pixels or bytes, of which each decoding thread reserves its part.

    Small parts hardly ever wait; large ones are decoded one after another.
    """

    def __init__(self, amount: int, timeout_s: float, what: str) -> None:
        """Store the budget, the longest wait, and what is decoded, for the error."""
        self._free = amount
        self._timeout_s = timeout_s
        self._what = what
        self._released = threading.Condition()

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Reserve an amount, at most the whole budget, until the block ends.

        Raises:
            Unavailable: not enough was released within the timeout.
        """
        with self._released:
            if not self._released.wait_for(
                lambda: self._free >= amount, self._timeout_s
            ):
                raise Unavailable(
                    f"too many {self._what} at once", round(self._timeout_s)
                )
            self._free -= amount
        try:
            yield
        finally:
            with self._released:
                self._free += amount
                self._released.notify_all()
            if amount > _LARGE:
                # Otherwise each thread's heap keeps the size of its largest one:
                # gigabytes in all.
                give_back()
