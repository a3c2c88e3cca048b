"""Framing of request bodies: by Content-Length, or chunked."""

from collections.abc import Callable, Iterator

import httptools

from app.server.head import END, OVERLAP, Malformed

# Limit on sizes, extensions and trailers between the data of two chunks.
_MAX_BETWEEN_CHUNKS_BYTES = 64 << 10
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
# RFC 9110, 6.5.1: no fields of routing or framing in trailers.
_FORBIDDEN_TRAILERS = (b"content-length", b"host", b"transfer-encoding")

# Takes a part of the body.
Take = Callable[[bytes], object]


class SizedBody:
    """A body of known length."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        """Expect `length` bytes, 1 or more."""
        self.left: int | None = length

    def feed(self, data: bytes, take: Take) -> bytes:
        """Pass bytes of the body to `take`; return the bytes behind the body."""
        assert self.left is not None
        part = data[: self.left]
        self.left -= len(part)
        take(part)
        return data[len(part) :]

    def complete(self) -> bool:
        """Return whether the whole body has arrived."""
        return not self.left


class ChunkedBody:
    """A chunked body, parsed by httptools; trailers are checked and dropped."""

    __slots__ = ("_begun", "_between", "_complete", "_parser", "_parts", "_tail")

    # The number of missing bytes is unknown.
    left = None

    def __init__(self) -> None:
        """Start the parser."""
        self._parser = httptools.HttpRequestParser(self)
        self._complete = False
        self._between = 0
        self._tail = b""
        # Data of chunks that `take` has not got.
        self._parts: list[bytes] = []
        self._begun = False
        self._parser.feed_data(_CHUNKED_HEAD)
        self._begun = True

    def feed(self, data: bytes, take: Take) -> bytes:
        """Pass bytes of the body to `take`; return the bytes behind the body.

        httptools would parse the next request, too, so it is fed only up to a possible
        end of the body.

        Raises:
            Malformed: not chunks, or too many bytes between their data.
        """
        start = 0
        for stop in self._possible_ends(data):
            self._parse(data[start:stop])
            start = stop
            if self._complete:
                # It refers to this object.
                del self._parser
                break
        self._tail = (self._tail + data)[-OVERLAP:]
        if self._parts:
            # At once, as there may be thousands.
            take(b"".join(self._parts))
            self._parts.clear()
        return data[start:]

    def _possible_ends(self, data: bytes) -> Iterator[int]:
        """Yield places behind empty lines, and the end of the data.

        The line before the end of a body is not empty: it is the last chunk's size, or
        a trailer.
        """
        text = self._tail + data
        end = text.find(END)
        while end >= 0:
            yield end + len(END) - len(self._tail)
            end = text.find(END, end + len(END) + 1)
        yield len(data)

    def _parse(self, piece: bytes) -> None:
        self._between += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise Malformed(f"the chunks are malformed: {error}") from None
        if self._between > _MAX_BETWEEN_CHUNKS_BYTES:
            raise Malformed("too much stands between the data of the chunks")

    def complete(self) -> bool:
        """Return whether the whole body has arrived."""
        return self._complete

    def on_body(self, part: bytes) -> None:
        """Take data of a chunk from the parser."""
        self._between = 0
        self._parts.append(part)

    def on_header(self, name: bytes, _: bytes) -> None:
        """Check a trailer."""
        if name.lower() in _FORBIDDEN_TRAILERS and self._begun:
            raise Malformed(f"its trailers: {name.decode()} has no place there")

    def on_message_complete(self) -> None:
        """Note the end."""
        self._complete = True
