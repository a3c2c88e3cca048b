"""A cache of parsed heads, as most clients repeat theirs."""

from functools import lru_cache

from app.server.head import END, Head, Limits

# Size and number of cached heads.
_CACHED_BYTES, _CACHED_HEADS = 1 << 10, 1 << 10


class Heads:
    """Parses heads, with a cache for those that arrive in one packet.

    Parsing a head takes as long as a small model takes for a row.
    """

    def __init__(self, limits: Limits) -> None:
        """Store the limits."""
        self._limits = limits
        self._parsed = lru_cache(_CACHED_HEADS)(self._parse)

    def begin(self, data: bytes) -> tuple[Head, bytes]:
        """Return the head at the start of the data, and the bytes behind it.

        Raises:
            Malformed: the head is refused.
        """
        size = data.find(END) + len(END)
        if len(END) <= size <= _CACHED_BYTES:
            head = self._parsed(data[:size])
            if head.complete:
                return head, data[size:]
        head = Head(self._limits)
        return head, head.feed(data)

    def none(self) -> Head:
        """Return an empty head."""
        return Head(self._limits)

    def _parse(self, data: bytes) -> Head:
        head = Head(self._limits)
        head.feed(data)
        return head
