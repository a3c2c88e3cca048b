"""Heads that were parsed before: most clients repeat theirs."""

from functools import lru_cache

from app.server.head import END, Head, Limits

# Heads up to this size are kept, so many of them.
_KEPT_BYTES, _KEPT_HEADS = 1 << 10, 1 << 10


class Heads:
    """Parses heads that are there as a whole, and keeps the last ones.

    A small model computes a row in the time that it takes to parse a head.
    """

    def __init__(self, limits: Limits) -> None:
        """Store the limits."""
        self._limits = limits
        self._parsed = lru_cache(_KEPT_HEADS)(self._parse)

    def begin(self, data: bytes) -> tuple[Head, bytes]:
        """Return the head that data begin with, and the bytes behind it.

        Raises:
            Malformed: the head is refused.
        """
        size = data.find(END) + len(END)
        if len(END) <= size <= _KEPT_BYTES:
            head = self._parsed(data[:size])
            if head.complete:
                return head, data[size:]
        head = Head(self._limits)
        return head, head.feed(data)

    def none(self) -> Head:
        """Return the head of a request that has none."""
        return Head(self._limits)

    def _parse(self, data: bytes) -> Head:
        head = Head(self._limits)
        head.feed(data)
        return head
