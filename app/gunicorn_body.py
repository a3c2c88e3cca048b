"""A request's body as it comes out of the socket, for Gunicorn's threaded worker.

Gunicorn's own reader takes a body in steps of 1 KiB, copies its buffer at each, and
asks the socket for no more than 8 KiB at a time.
"""

import io
from typing import TYPE_CHECKING, Any

from gunicorn.http.body import LengthReader
from gunicorn.http.unreader import SocketUnreader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class DirectBody(io.RawIOBase):
    """A body of known length, of which the header's reader may hold the beginning."""

    def __init__(self, unreader: SocketUnreader, length: int) -> None:
        """Store where to read from; `length` is in bytes."""
        self._unreader = unreader
        self._left = length
        self._ahead = True

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer as far as there is something; 0: the end, or hung up."""
        view = memoryview(buffer).cast("B")[: self._left]
        if not view:
            return 0
        count = self._take_ahead(view) or self._unreader.sock.recv_into(view)
        self._left -= count
        return count

    def _take_ahead(self, view: memoryview) -> int:
        """Move what came with the header; what is of the next request stays."""
        data = self._unreader.take_buffered() if self._ahead else b""
        count = min(len(data), len(view))
        view[:count] = data[:count]
        if count < len(data):
            self._unreader.unread(data[count:])
        self._ahead = count < len(data)
        return count


def read_directly(request: Any) -> None:
    """Give Gunicorn's request a DirectBody, where its length is known."""
    reader = getattr(request.body, "reader", None)
    if isinstance(reader, LengthReader) and isinstance(reader.unreader, SocketUnreader):
        request.body = DirectBody(reader.unreader, reader.length)
