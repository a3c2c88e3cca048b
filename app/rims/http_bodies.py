"""Framing of request bodies: by Content-Length, or chunked."""

import math
from collections.abc import Iterator

import httptools

from app.rims.http_heads import END, Malformed

# Limit on sizes, extensions and trailers between the data of two chunks.
_MAX_BETWEEN_CHUNKS_BYTES = 64 << 10
# Bytes that may begin an END.
_OVERLAP = len(END) - 1
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
# RFC 9110, 6.5.1: no fields of routing or framing in trailers.
_FORBIDDEN_TRAILERS = (b"content-length", b"host", b"transfer-encoding")


class SizedBody:
    """A body of known length; `left_bytes` are still to come."""

    def __init__(self, length: int) -> None:
        """Expect `length` bytes, 1 or more."""
        self.left_bytes: float = length
        self.is_complete = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the bytes of the body, and those behind it."""
        part = data[: int(self.left_bytes)]
        self.left_bytes -= len(part)
        self.is_complete = not self.left_bytes
        return part, data[len(part) :]


class ChunkedBody:
    """A chunked body, parsed by httptools; trailers are checked and dropped."""

    # It may be any number.
    left_bytes = math.inf

    def __init__(self) -> None:
        """Start the parser."""
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._has_begun = False
        self._between_bytes = 0
        self._tail = b""
        # Data of the chunks in the bytes that are parsed.
        self._parts: list[bytes] = []
        self._parser.feed_data(_CHUNKED_HEAD)
        self._has_begun = True

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the data of the body's chunks, and the bytes behind the body.

        httptools would parse the next request, too, so it is fed only up to a possible
        end of the body.

        Raises:
            Malformed: not chunks, or too many bytes between their data.
        """
        start = 0
        for stop in self._possible_ends(data):
            self._parse(data[start:stop])
            start = stop
            if self.is_complete:
                # Avoid a reference cycle: it refers to this object.
                del self._parser
                break
        self._tail = (self._tail + data)[-_OVERLAP:]
        part = b"".join(self._parts)
        self._parts.clear()
        return part, data[start:]

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
        self._between_bytes += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise Malformed(f"the chunks are malformed: {error}") from None
        if self._between_bytes > _MAX_BETWEEN_CHUNKS_BYTES:
            raise Malformed("too much stands between the data of the chunks")

    # Called by httptools.

    def on_body(self, part: bytes) -> None:
        """Take data of a chunk."""
        self._between_bytes = 0
        self._parts.append(part)

    def on_header(self, name: bytes, _: bytes) -> None:
        """Check a trailer."""
        if name.lower() in _FORBIDDEN_TRAILERS and self._has_begun:
            raise Malformed(f"its trailers: {name.decode()} has no place there")

    def on_message_complete(self) -> None:
        """Note the end."""
        self.is_complete = True
