"""How many pixels may be in memory at once, over all request threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Unavailable
from app.memory import give_back

# Shares above this are worth the milliseconds that giving memory back takes.
_LARGE = 4_000_000


class PixelBudget:
    """Lends pixels to whoever decodes a picture.

    Small pictures take little of it and hardly ever wait; large ones that come
    together are decoded one after another.
    """

    def __init__(self, pixels: int, patience_s: float) -> None:
        """Store the budget, and how many seconds anybody waits for a share."""
        self._free = pixels
        self._patience_s = patience_s
        self._given_back = threading.Condition()

    @contextmanager
    def lend(self, pixels: int) -> Iterator[None]:
        """Keep a share, at most the whole budget, until the block ends.

        Raises:
            Unavailable: others have kept it for too long.
        """
        with self._given_back:
            if not self._given_back.wait_for(
                lambda: self._free >= pixels, self._patience_s
            ):
                raise Unavailable(
                    "too many large pictures at once", round(self._patience_s)
                )
            self._free -= pixels
        try:
            yield
        finally:
            with self._given_back:
                self._free += pixels
                self._given_back.notify_all()
            if pixels > _LARGE:
                # Else each thread would keep what its largest picture took, gigabytes
                # in all.
                give_back()
