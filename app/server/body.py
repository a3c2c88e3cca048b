"""Where a request's body ends: by its length, or in chunks."""

from collections.abc import Callable

import httptools

from app.server.head import Malformed

# Sizes, extensions and trailers between the data of two chunks, and in all trailers.
_MAX_BETWEEN_CHUNKS_BYTES = 64 << 10
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
# Fields of routing and framing are not allowed in trailers (RFC 9110, 6.5.1).
_FORBIDDEN_TRAILERS = (b"content-length", b"host", b"transfer-encoding")
_END = b"\r\n\r\n"
_OVERLAP = len(_END) - 1

# Takes a part of the body.
Take = Callable[[bytes], object]


class SizedBody:
    """A body of known length."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        """Expect so many bytes, 1 or more."""
        self.left: int | None = length

    def feed(self, data: bytes, take: Take) -> bytes:
        """Give `take` what belongs to the body; return the bytes behind it."""
        assert self.left is not None
        part = data[: self.left]
        self.left -= len(part)
        take(part)
        return data[len(part) :]

    def complete(self) -> bool:
        """Return whether all of it has come."""
        return not self.left


class ChunkedBody:
    """A body in chunks, parsed by httptools; trailers are checked and dropped."""

    __slots__ = ("_begun", "_between", "_complete", "_parser", "_tail", "_take")

    # How many bytes are missing is not known.
    left = None

    def __init__(self) -> None:
        """Begin a body of which nothing has come."""
        self._parser = httptools.HttpRequestParser(self)
        self._complete = False
        self._between = 0
        self._tail = b""
        self._take: Take = len
        self._begun = False
        self._parser.feed_data(_CHUNKED_HEAD)
        self._begun = True

    def feed(self, data: bytes, take: Take) -> bytes:
        """Give `take` what belongs to the body; return the bytes behind it.

        httptools parses on into the next request, so it is fed only up to where a body
        may end.

        Raises:
            Malformed: these are no chunks, or too much stands between them.
        """
        self._take = take
        while data and not self._complete:
            end = (self._tail + data).find(_END)
            stop = len(data) if end < 0 else end + len(_END) - len(self._tail)
            piece, data = data[:stop], data[stop:]
            self._tail = (self._tail + piece)[-_OVERLAP:]
            self._between += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserCallbackError as error:
                raise error.__context__ or error from None
            except httptools.HttpParserError as error:
                raise Malformed(f"the chunks are malformed: {error}") from None
            if self._between > _MAX_BETWEEN_CHUNKS_BYTES:
                raise Malformed("too much stands between the data of the chunks")
        self._take = len
        if self._complete:
            # It holds this object, too.
            del self._parser
        return data

    def complete(self) -> bool:
        """Return whether all of it has come."""
        return self._complete

    def on_body(self, part: bytes) -> None:
        """Take data from the parser."""
        self._between = 0
        self._take(part)

    def on_header(self, name: bytes, _: bytes) -> None:
        """Check a trailer."""
        if name.lower() in _FORBIDDEN_TRAILERS and self._begun:
            raise Malformed(f"its trailers: {name.decode()} has no place there")

    def on_message_complete(self) -> None:
        """Note the end."""
        self._complete = True
