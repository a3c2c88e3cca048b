"""A thread that writes what others hand over, and never makes them wait."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class BackgroundLimits:
    """What a Background holds, and when it writes.

    It writes `linger_s` after the first item, or at once when it has `full_items`, or
    `full_bytes`. It refuses more than `max_items`, or `max_bytes`, those that are being
    written included.
    """

    linger_s: float
    full_items: int
    full_bytes: int
    max_items: int
    max_bytes: int


class Background(Generic[_T]):
    """Collects items, and calls `write` with many at a time in a thread of its own.

    The thread starts with the first item. A process that ends without `close`, because
    it was killed, loses what was not written.
    """

    def __init__(
        self, name: str, write: Callable[[list[_T]], None], bounds: BackgroundLimits
    ) -> None:
        """Store the thread's name, and `write`, which raises nothing."""
        self._write = write
        self._bounds = bounds
        self._items: list[_T] = []
        # Bytes of `_items`, and of those that are being written.
        self._bytes = self._writing_bytes = 0
        # How many items may wait: fewer while others are being written, 0 when closed.
        self._room = bounds.max_items
        self._closed = self._started = False
        # A lock is entered in a third of the time of its condition.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # A process that ends waits for it only in `close`.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def offer(self, item: _T, size: int = 0) -> bool:
        """Take an item of `size` bytes; return False, at once, if there is no room."""
        bounds = self._bounds
        with self._lock:
            count, size = len(self._items) + 1, self._bytes + size
            if count > self._room or size + self._writing_bytes > bounds.max_bytes:
                return False
            self._items.append(item)
            self._bytes = size
            # Most items wake no thread, which would take Python's lock.
            if count in (1, bounds.full_items) or size >= bounds.full_bytes:
                self._changed.notify()
                if not self._started:
                    self._started = True
                    self._thread.start()
        return True

    def close(self, timeout_s: float) -> None:
        """Refuse further items, and write all others within the time."""
        with self._changed:
            self._closed, self._room = True, 0
            self._changed.notify()
        if self._started:
            self._thread.join(timeout_s)

    def _is_due(self) -> bool:
        bounds = self._bounds
        return (
            self._closed
            or len(self._items) >= bounds.full_items
            or self._bytes >= bounds.full_bytes
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed)
                self._changed.wait_for(self._is_due, self._bounds.linger_s)
                items, self._items = self._items, []
                self._writing_bytes, self._bytes = self._bytes, 0
                self._room -= len(items)
            if not items:
                return
            self._write(items)
            # Before it waits for more: arrays are freed with their last reference.
            del items
            with self._changed:
                self._writing_bytes = 0
                self._room = 0 if self._closed else self._bounds.max_items
