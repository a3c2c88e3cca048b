"""Batch ceilings: the largest batch that fits into the device's memory.

Each ceiling is found by a binary search between the largest size that fitted and the
smallest that ran out of memory. The batches themselves are its steps: it starts with
half of the size that failed and ends after log2 of the number of sizes. Other
processes may free memory, so the failed size is tried again after a minute, then after
two, at most after an hour.
"""

import bisect
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from app.batching.job import Key

_MIN_RETRY_S = 60.0
_MAX_RETRY_S = 3600.0
# Clients may send any row shape to a model that leaves sizes free.
_MAX_KEYS = 64


class BatchCeilings:
    """The batch ceiling of each key, in rows.

    `sizes` are the allowed batch sizes of each signature, increasing; a key without a
    failure has the last one as its ceiling. Thread-safe.
    """

    def __init__(
        self,
        sizes: Mapping[str, Sequence[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the sizes, in rows; a test replaces `clock`."""
        self._sizes = sizes
        self._lowest = min(each[-1] for each in sizes.values())
        self._clock = clock
        self._searches: dict[Key, _Search] = {}
        self._lock = threading.Lock()

    def limit(self, key: Key) -> int:
        """Return the ceiling of the next batch of this key."""
        # An empty dictionary is the usual case, and hashing a key is slow.
        search = self._searches.get(key) if self._searches else None
        sizes = self._sizes[key[0]]
        return sizes[-1 if search is None else search.next_try(self._clock())]

    def lowest(self) -> int:
        """Return the lowest ceiling of all keys."""
        if not self._searches:
            return self._lowest
        with self._lock:
            keys = list(self._searches)
        return min(self._lowest, *map(self.limit, keys))

    def fitted(self, key: Key, rows: int) -> bool:
        """Record that so many rows ran; return whether the ceiling may have moved."""
        if not self._searches or key not in self._searches:
            return False
        with self._lock:
            search = self._searches.get(key)
            return search is not None and search.fitted(self._index(key, rows))

    def overflowed(self, key: Key, rows: int) -> None:
        """Record that so many rows ran out of memory, which lowers the ceiling."""
        with self._lock:
            search = self._searches.get(key)
            if search is None:
                if len(self._searches) == _MAX_KEYS:
                    del self._searches[next(iter(self._searches))]
                search = self._searches[key] = _Search(len(self._sizes[key[0]]))
            search.overflowed(self._index(key, rows), self._clock())

    def _index(self, key: Key, rows: int) -> int:
        """Return the index of the smallest size that is at least `rows`."""
        return bisect.bisect_left(self._sizes[key[0]], rows)


class _Search:
    """A binary search over indexes of the sizes."""

    def __init__(self, sizes: int) -> None:
        self._sizes = sizes
        # The largest index known to fit and the smallest known to fail.
        self._fits = -1
        self._fails = sizes
        self._retry_after_s = _MIN_RETRY_S
        self._retry_at = 0.0

    def next_try(self, now: float) -> int:
        if self._fails < self._sizes and now >= self._retry_at:
            return self._fails
        if self._fails - self._fits > 1:
            return (self._fits + self._fails + 1) // 2
        return max(self._fits, 0)

    def fitted(self, index: int) -> bool:
        if index <= self._fits:
            return False
        self._fits = index
        if self._fits >= self._fails:
            self._fails = self._sizes
            self._retry_after_s = _MIN_RETRY_S
        return True

    def overflowed(self, index: int, now: float) -> None:
        if now >= self._retry_at > 0:
            self._retry_after_s = min(2 * self._retry_after_s, _MAX_RETRY_S)
        self._retry_at = now + self._retry_after_s
        self._fails = min(self._fails, index)
        if self._fits >= self._fails:
            self._fits = -1
