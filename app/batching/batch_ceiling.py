"""The largest batch that fits into the device's memory, learnt from those that did not.

A binary search between the largest size that fitted and the smallest that did not,
carried on by the batches themselves: it starts with half of what failed, and is over
after log2 of the sizes. Memory that others held may come back, so the size that failed
is tried again after a minute, then after two, at most after an hour.
"""

import bisect
import threading
import time
from collections.abc import Callable, Sequence

from app.batching.job import Key

_FIRST_RETRY_S = 60.0
_LAST_RETRY_S = 3600.0
# Keys whose ceilings are remembered; clients may send any shape to a model
# that leaves sizes free.
_MAX_KEYS = 64


class BatchCeilings:
    """For each key, how many rows of it a batch may have now.

    `sizes` are the batch sizes there are, increasing; the last is the limit where
    nothing has failed yet. Safe to use from several threads.
    """

    def __init__(
        self, sizes: Sequence[int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Store the sizes, in rows; a test drives `clock`."""
        self._sizes = sizes
        self._clock = clock
        self._searches: dict[Key, _Search] = {}
        self._changing = threading.Lock()

    def limit(self, key: Key) -> int:
        """The most rows to put into the next batch of this key; at least one size."""
        search = self._searches.get(key)
        if search is None:
            return self._sizes[-1]
        return self._sizes[search.next_try(self._clock())]

    def lowest(self) -> int:
        """The lowest limit of all keys: what the gauge shows."""
        with self._changing:
            keys = list(self._searches)
        return min(map(self.limit, keys), default=self._sizes[-1])

    def fitted(self, key: Key, rows: int) -> bool:
        """Note that a batch of so many rows ran; say whether a limit may have moved."""
        if key not in self._searches:
            return False
        with self._changing:
            search = self._searches.get(key)
            return search is not None and search.fitted(self._place(rows))

    def overflowed(self, key: Key, rows: int) -> bool:
        """Note that so many rows did not fit; the limit moves."""
        with self._changing:
            search = self._searches.get(key)
            if search is None:
                if len(self._searches) == _MAX_KEYS:
                    del self._searches[next(iter(self._searches))]
                search = self._searches[key] = _Search(len(self._sizes))
            search.overflowed(self._place(rows), self._clock())
        return True

    def _place(self, rows: int) -> int:
        """The place among the sizes of the smallest that holds so many rows."""
        return bisect.bisect_left(self._sizes, rows)


class _Search:
    """Places among the sizes: the largest known to fit, the smallest known not to."""

    def __init__(self, sizes: int) -> None:
        self._sizes = sizes
        self._fits = -1
        self._fails = sizes
        self._retry_after_s = _FIRST_RETRY_S
        self._retry_at = 0.0

    def next_try(self, now: float) -> int:
        if self._fails < self._sizes and now >= self._retry_at:
            return self._fails
        if self._fails - self._fits > 1:
            return (self._fits + self._fails + 1) // 2
        return max(self._fits, 0)

    def fitted(self, place: int) -> bool:
        if place <= self._fits:
            return False
        self._fits = place
        if self._fits >= self._fails:
            self._fails = self._sizes
            self._retry_after_s = _FIRST_RETRY_S
        return True

    def overflowed(self, place: int, now: float) -> None:
        if now >= self._retry_at > 0:
            self._retry_after_s = min(2 * self._retry_after_s, _LAST_RETRY_S)
        self._retry_at = now + self._retry_after_s
        self._fails = min(self._fails, place)
        if self._fits >= self._fails:
            self._fits = -1
