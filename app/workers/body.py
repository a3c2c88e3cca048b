"""A request's body as it comes out of the socket, for Gunicorn's threaded worker.

Gunicorn's own readers take a body in steps of 1 KiB, take one that is cut off for
whole, put no bound on what stands between chunks, and read on behind a broken one.
"""

import errno
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gunicorn.http.body import ChunkedReader, LengthReader
from gunicorn.http.errors import NoMoreData, ParseException

from app.workers.unreader import TimelyUnreader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# So much is left of a body that Gunicorn does not throw it away to keep a connection.
_TOO_MUCH_BYTES = 1 << 16
# Of chunk sizes, extensions and trailers for one step of a body's data.
_BETWEEN_CHUNKS_BYTES = 1 << 16


class DirectBody(io.RawIOBase):
    """A body of known length, of which the header's reader may hold the beginning."""

    def __init__(
        self, unreader: TimelyUnreader, length: int, give_up: Callable[[], None]
    ) -> None:
        """Store where to read from; `length` is in bytes.

        `give_up` is called when the rest of the body can't be read, so that it is not
        taken for the next request.
        """
        self._unreader = unreader
        self._left = length
        self._give_up: Callable[[], None] | None = give_up
        self._ahead = True
        self._took(0)

    def readable(self) -> bool:
        """Yes."""
        return True

    def is_read(self) -> bool:
        """Say whether nothing is left."""
        return not self._left

    def is_in_the_way(self) -> bool:
        """Say whether so much is left that no other request can follow it."""
        return self._left >= _TOO_MUCH_BYTES

    def read(self, size: int = -1, /) -> bytes | None:
        """As RawIOBase.read, but a body that is here is given as it is."""
        if self._ahead and 0 < self._left <= size:
            data = self._unreader.take_buffered()
            if len(data) == self._left:
                self._took(len(data))
                return data
            self._unreader.unread(data)
        return super().read(size)

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer as far as there is something; 0: the end.

        Raises:
            TimeoutError: nothing came in time.
            ConnectionResetError: the client hung up before the end.
        """
        view = memoryview(buffer).cast("B")[: self._left]
        if not view:
            return 0
        try:
            count = self._take_ahead(view) or self._unreader.receive_into(view)
            if not count:
                raise _cut_off()
        except OSError:
            if self._give_up is not None:
                self._give_up()
            raise
        self._took(count)
        return count

    def _took(self, count: int) -> None:
        self._left -= count
        if not self._left:
            # It is a request's, which has this body: a circle to be collected.
            self._give_up = None

    def _take_ahead(self, view: memoryview) -> int:
        """Move what came with the header; what is of the next request stays."""
        data = self._unreader.take_buffered() if self._ahead else b""
        count = min(len(data), len(view))
        view[:count] = data[:count]
        if count < len(data):
            self._unreader.unread(data[count:])
        self._ahead = count < len(data)
        return count


class StrictChunks(ChunkedReader):
    """Gunicorn's reader of a body in chunks, which ends with the first bad one."""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none: the end.

        Raises:
            OSError: it is cut off, late, or is not in chunks.
            ValueError: bad trailers.
        """
        try:
            return super().read(size)
        except (OSError, ValueError, ParseException) as error:
            self.req.force_close()
            if isinstance(error, NoMoreData):
                raise _cut_off() from error
            if isinstance(error, ParseException):
                raise ValueError(f"its trailers: {error}") from error
            raise


class BoundedChunks(StrictChunks):
    """StrictChunks that have little between them."""

    def __init__(self, request: Any, unreader: TimelyUnreader) -> None:
        """Store the request, and where to read from."""
        super().__init__(request, unreader)
        self._unreader = unreader

    def is_read(self) -> bool:
        """Say whether nothing is left."""
        return self.parser is None

    def is_in_the_way(self) -> bool:
        """Say whether anything is left, as nobody knows how much that is."""
        return not self.is_read()

    def read(self, size: int) -> bytes:
        """As StrictChunks.read.

        Raises:
            OSError: as there.
            ValueError: too much between two chunks, too.
        """
        self._unreader.allow(size + _BETWEEN_CHUNKS_BYTES)
        return super().read(size)


def read_directly(request: Any, timeout_s: float, limit_bytes: int) -> None:
    """Have a request of Gunicorn's read its body here, within `timeout_s`.

    A client that asks first is not told to send one that is larger than the limit.
    """
    reader = getattr(request.body, "reader", None)
    unreader = request.unreader
    if not isinstance(unreader, TimelyUnreader):
        return
    unreader.begin_body(timeout_s)
    if isinstance(reader, LengthReader):
        if reader.length > limit_bytes:
            request._expected_100_continue = False
        request.body = DirectBody(unreader, reader.length, request.force_close)
    elif isinstance(reader, ChunkedReader):
        request.body.reader = BoundedChunks(request, unreader)


def is_unread(request: Any) -> bool:
    """Say whether the client of a request may still be sending its body."""
    reader = _reader_of(request)
    return reader is not None and not reader.is_read()


def is_in_the_way(request: Any) -> bool:
    """Say whether a request's body keeps the next one from following it."""
    reader = _reader_of(request)
    return reader is not None and reader.is_in_the_way()


def _reader_of(request: Any) -> DirectBody | BoundedChunks | None:
    """What reads a request's body; None: it is not read here."""
    reader = getattr(request.body, "reader", request.body)
    return reader if isinstance(reader, DirectBody | BoundedChunks) else None


def _cut_off() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "it is cut off")
