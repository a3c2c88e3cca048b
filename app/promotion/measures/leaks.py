"""Notices a version that keeps memory with each batch, before memory ends."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from app import memory

# Growth of fewer bytes with each batch is not told from that of caches.
_LEAST_BYTES = 8 << 20
_BATCHES = 4
# Two batches are enough if they took such a share of the memory that was free.
_LARGE_BATCHES, _LARGE_SHARE, _LARGE_BYTES = 2, 0.25, 64 << 20


class Leaks(Exception):
    """A version leaks; `bytes_a_batch` is about how much."""

    def __init__(self, bytes_a_batch: float) -> None:
        """Store the number of bytes."""
        super().__init__(bytes_a_batch)
        self.bytes_a_batch = bytes_a_batch


class LeakWatch:
    """Compares this process's resident memory before and after each batch.

    First batches of each kind allocate what later ones use again, and do not count. A
    leak is growth of 8 MiB or more with each of four batches on end, or with two that
    took a quarter of the free memory, which stays after a garbage collection.
    """

    def __init__(
        self,
        resident_bytes: Callable[[], int] = memory.resident_bytes,
        available_bytes: Callable[[], int] = memory.available_bytes,
        settle: Callable[[], None] = memory.collect,
    ) -> None:
        """Store how memory is read; `settle` frees what is not used."""
        self._resident = resident_bytes
        self._available = available_bytes
        self._settle = settle
        self._kinds: set[Hashable] = set()
        # Resident memory before the first batch that grew, and growth of each since.
        self._base = 0
        self._growth: list[int] = []

    @contextmanager
    def over(self, kind: Hashable) -> Iterator[list[int]]:
        """Watch a batch; append to the list the bytes of what the caller holds of it.

        Raises:
            Leaks: it was the last of those that show a leak.
        """
        held: list[int] = []
        before = self._resident()
        yield held
        if kind not in self._kinds:
            self._kinds.add(kind)
            return
        growth = self._resident() - before - sum(held)
        if growth < _LEAST_BYTES:
            self._growth.clear()
            return
        if not self._growth:
            self._base = before
        self._growth.append(growth)
        if self._is_suspect():
            self._judge(sum(held))

    def _is_suspect(self) -> bool:
        count = len(self._growth)
        if count >= _BATCHES:
            return True
        large = max(_LARGE_SHARE * self._available(), _LARGE_BYTES)
        return count >= _LARGE_BATCHES and sum(self._growth) > large

    def _judge(self, held: int) -> None:
        """Raise Leaks if the memory is not free after a garbage collection."""
        count, grown = len(self._growth), sum(self._growth)
        self._growth.clear()
        self._settle()
        # What the other version took meanwhile is not this one's.
        kept = min(self._resident() - self._base - held, grown) / count
        if kept >= _LEAST_BYTES:
            raise Leaks(kept)
