"""What Gunicorn's threaded worker reads from a connection, and by when.

Gunicorn's own unreader waits for a client for as long as it likes.
"""

import io
import os
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gunicorn.http.unreader import SocketUnreader

from app.workers.peer import Peer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_AT_ONCE = int(socket.MSG_DONTWAIT)
_LINE_END = b"\r\n"
_HEADER_END = b"\r\n\r\n"
# A header and a small body come in one piece.
_AT_A_TIME_BYTES = 1 << 16
_ASKING = (b"GET ", b"HEAD ", b"OPTIONS ")
# More of an unfinished header is left to the parser, which knows the limits.
_PARKED_BYTES = 1 << 16
# A small body has no more; one in a header like these is left to the parser.
_SMALL_BYTES = 64 << 10
PLAIN_LENGTH = re.compile(
    rb"\r\nContent-Length:[ \t]*([0-9]{1,9})[ \t]*(?=\r\n)", re.IGNORECASE
)
_LENGTH = re.compile(rb"\r\nContent-Length", re.IGNORECASE)
_NOT_PLAIN = re.compile(
    rb"\r\n(?:Transfer-Encoding|Expect|Upgrade)[ \t]*:", re.IGNORECASE
)


class TimelyUnreader(SocketUnreader):
    """Reads from a connection, up to a deadline on the monotonic clock.

    Too late in a header is the end, as if the client had hung up; too late in a body
    is a TimeoutError.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Store the connection; there is no deadline yet."""
        super().__init__(sock)
        self.peer = Peer()
        self._deadline = 0.0
        self._bytes_left: int | None = None
        self._header_since: float | None = None
        # Of what is here: so many bytes are a header.
        self._header_bytes = 0

    def read(self, size: int | None = None) -> bytes:
        """As Unreader.read, but a header that is here comes without its body.

        The parser copies several times what it is given.
        """
        count, self._header_bytes = self._header_bytes, 0
        data = self.take_buffered() if count and size is None else b""
        if not data:
            return super().read(size)
        self.unread(data[count:])
        return data[:count]

    def unread(self, data: "ReadableBuffer") -> None:
        """As Unreader.unread, but alone it is not copied."""
        self.buf = io.BytesIO(bytes(data) + self.take_buffered())

    def header(self) -> bytes:
        """The whole header that is here; nothing: it is not all here."""
        return self.buf.getvalue()[: self._header_bytes]

    def has_header(self) -> bool:
        """Take what has come; say whether it is a header, or one no more can help."""
        data = self.take_buffered()
        try:
            while _HEADER_END not in data and len(data) < _PARKED_BYTES:
                more = self._receive_at_once(_AT_A_TIME_BYTES)
                data += more
                if not more:
                    break
            is_there = True
        except (BlockingIOError, ssl.SSLWantReadError):
            is_there = False
        except OSError:
            # The parser meets it again, and tells Gunicorn.
            is_there = True
        if data.startswith(_LINE_END) and data[2:3] not in (b"", b"\r"):
            # An empty line before a request is none of it. A proxy's words in their
            # binary form begin with two.
            data = data[2:]
        self.unread(data)
        end = data.find(_HEADER_END)
        self._header_bytes = end + len(_HEADER_END) if end >= 0 else 0
        if is_there or not data:
            self._header_since = None
        elif self._header_since is None:
            self._header_since = time.monotonic()
        return is_there

    def small_request_lacks(self) -> int | None:
        """Take what has come; say how many bytes a request with a small body lacks.

        That is a POST, or what only asks and has none. None: it is something else, its
        header is not all there, or it is cut off. With 0, nothing has to be waited for
        to read it.
        """
        length = _small_length(self.header()) if self.has_header() else None
        if length is None:
            return None
        lacks = self._header_bytes + length - len(self.buf.getvalue())
        try:
            while lacks > 0:
                more = self._receive_at_once(lacks)
                if not more:
                    return None
                self.unread(self.take_buffered() + more)
                lacks -= len(more)
        except BlockingIOError:
            return lacks
        except OSError:
            return None
        return 0

    def _receive_at_once(self, count: int) -> bytes:
        if isinstance(self.sock, ssl.SSLSocket):
            # It takes no flags; whoever reads the request has it block again.
            self.sock.setblocking(False)
            return self.sock.recv(count)
        return self.sock.recv(count, _AT_ONCE)

    def header_age_s(self) -> float:
        """Seconds since the first bytes of an unfinished header were seen."""
        since = self._header_since
        return 0.0 if since is None else time.monotonic() - since

    def has_more(self) -> bool:
        """Say whether bytes are here that no look at the socket would show."""
        pending = getattr(self.sock, "pending", None)
        here = self.buf.seek(0, os.SEEK_END)
        return bool(here or (pending is not None and pending()))

    def begin_header(self, timeout_s: float) -> None:
        """From now on a header is read, for so long."""
        self._deadline = time.monotonic() + timeout_s
        self._bytes_left = None

    def begin_body(self, timeout_s: float) -> None:
        """From now on a body is read, for so long."""
        self._deadline = time.monotonic() + timeout_s
        self.allow(self.mxchunk)

    def allow(self, count: int) -> None:
        """So many bytes of a body in chunks may be taken from now on."""
        self._bytes_left = count

    def chunk(self) -> bytes:
        """The next bytes; none where the client has hung up.

        Raises:
            TimeoutError: none came in time, of a body.
            ValueError: more of a body in chunks than is allowed.
        """
        buffer = bytearray(self.mxchunk)
        try:
            count = self.receive_into(memoryview(buffer))
        except TimeoutError:
            if self._bytes_left is None:
                return b""
            raise
        if self._bytes_left is not None:
            self._bytes_left -= count
            if self._bytes_left < 0:
                raise ValueError("too much stands between the data of the chunks")
        return bytes(buffer[:count])

    def receive_into(self, view: memoryview) -> int:
        """Wait for bytes straight from the socket; 0: the client has hung up.

        Raises:
            TimeoutError: none came in time.
        """
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        with _receiving_limited(self.sock, left_s):
            return self.sock.recv_into(view)


def _small_length(header: bytes) -> int | None:
    """Of a request's body, which is small, or that of one that only asks; else None."""
    if _NOT_PLAIN.search(header) or not has_plain_lines(header):
        return None
    lengths = [int(digits) for digits in PLAIN_LENGTH.findall(header)]
    if header.startswith(b"POST "):
        return lengths[0] if len(lengths) == 1 and lengths[0] <= _SMALL_BYTES else None
    has_body = any(lengths) or len(_LENGTH.findall(header)) != len(lengths)
    return None if has_body or not header.startswith(_ASKING) else 0


def has_plain_lines(header: bytes) -> bool:
    """Whether all lines end with CRLF; to the parser a header may end with two LF."""
    return header.count(b"\n") == header.count(b"\r\n")


@contextmanager
def _receiving_limited(sock: socket.socket, timeout_s: float) -> Iterator[None]:
    """Have a wait for bytes end after so long, with a TimeoutError.

    By the kernel, in one call that keeps the interpreter's lock; `settimeout` takes
    four around each read that let go of it. Python's TLS asks the kernel again and
    again, so it needs them.
    """
    if not isinstance(sock, ssl.SSLSocket):
        _limit(sock, socket.SO_RCVTIMEO, timeout_s)
        try:
            yield
        except BlockingIOError:
            raise TimeoutError from None
        return
    before_s = sock.gettimeout()
    sock.settimeout(timeout_s if before_s is None else min(timeout_s, before_s))
    try:
        yield
    finally:
        sock.settimeout(before_s)


def limit_sending(sock: socket.socket, timeout_s: float) -> None:
    """Have each wait for a client to take bytes end after so long, with an OSError."""
    _limit(sock, socket.SO_SNDTIMEO, timeout_s)


def _limit(sock: socket.socket, option: int, timeout_s: float) -> None:
    micros = max(round(timeout_s * 1e6), 1)
    time_value = struct.pack("ll", *divmod(micros, 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, option, time_value)
