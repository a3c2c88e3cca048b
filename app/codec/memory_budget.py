"""How much may be in memory at once, over all request threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Unavailable
from app.memory import give_back

# Shares above this are worth the milliseconds that giving memory back takes.
_LARGE = 4_000_000


class MemoryBudget:
    """Lends pixels, or bytes, to whoever decodes what takes much memory.

    What is small takes little of it and hardly ever waits; large ones that come
    together are decoded one after another.
    """

    def __init__(self, amount: int, patience_s: float, what: str) -> None:
        """Store the budget, and how many seconds anybody waits for a share.

        `what` is decoded, for the refusal.
        """
        self._free = amount
        self._patience_s = patience_s
        self._what = what
        self._given_back = threading.Condition()

    @contextmanager
    def lend(self, share: int) -> Iterator[None]:
        """Keep a share, at most the whole budget, until the block ends.

        Raises:
            Unavailable: others have kept it for too long.
        """
        with self._given_back:
            if not self._given_back.wait_for(
                lambda: self._free >= share, self._patience_s
            ):
                raise Unavailable(
                    f"too many {self._what} at once", round(self._patience_s)
                )
            self._free -= share
        try:
            yield
        finally:
            with self._given_back:
                self._free += share
                self._given_back.notify_all()
            if share > _LARGE:
                # Else each thread would keep what its largest one took, gigabytes in
                # all.
                give_back()
