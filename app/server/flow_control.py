"""Flow control of a connection: pauses, send timeout and lingering close."""

import asyncio
import math
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from app.server.http_server import HttpServer

# Send timeout: seconds without a byte of a response being read.
SEND_TIMEOUT_S = 30.0
# Seconds without a byte after which a lingering close ends, and seconds in all.
_LINGER_S, _LINGER_TOTAL_S = 2.0, 30.0
# At the limit of connections: bytes that a client sends or reads in a second at least.
SLOWEST_BYTES_PER_S = 1024


class FlowControl(asyncio.Protocol):
    """Reads and writes for a connection; everything is called on the event loop.

    `deadline` is on the monotonic clock. It is set here while written bytes wait for
    the client, and by the connection otherwise.
    """

    _transport: asyncio.Transport

    def __init__(self, server: "HttpServer") -> None:
        """Store the server."""
        self.server = server
        self.deadline = math.inf
        self._paused = False
        # Bytes of a response that the kernel had not taken at the last check.
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        # The latest end of a lingering close; 0 unless the connection lingers.
        self.lingers = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)
        # So that `pause_writing` is called for any byte that the kernel does not take.
        self._transport.set_write_buffer_limits(high=0)

    def write(self, data: bytes) -> None:
        """Send; the transport buffers what the kernel does not take."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the kernel has taken all that was written."""
        if self._unsent_bytes:
            self._drained = self.server.future()
            await self._drained

    def pause_writing(self) -> None:
        """Start the send timeout."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline = self.server.now + SEND_TIMEOUT_S

    def resume_writing(self) -> None:
        """Resume the application's `send`."""
        self._unsent_bytes = 0
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def check_progress(self) -> bool:
        """Return whether a response is still being sent, at the deadline.

        A client that has read none of it since the last check is disconnected.
        """
        unsent_bytes = self._transport.get_write_buffer_size()
        if not unsent_bytes:
            return False
        if unsent_bytes < self._unsent_bytes:
            self.pause_writing()
        else:
            self._transport.abort()
        return True

    def unread_since(self) -> float:
        """Return since when the client does not read fast enough, inf if it does.

        Also since when it has not closed its side after its last response.
        """
        if not self._unsent_bytes:
            return self.lingers - _LINGER_TOTAL_S if self.lingers else math.inf
        read_bytes = self._unsent_bytes - self._transport.get_write_buffer_size()
        began_at = self.deadline - SEND_TIMEOUT_S
        return began_at + read_bytes / SLOWEST_BYTES_PER_S

    def close(self) -> None:
        """Close at once; what is unsent is lost."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Pause reading."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def linger(self, *, sends_more: bool) -> None:
        """Close, so that the client can read the response (RFC 9112, 9.6).

        Closing a socket that still receives bytes resets the connection, and the client
        loses the response. So only the writing side is closed, and incoming bytes are
        dropped until the client closes, too. TLS can't close one side: there, only a
        client that `sends_more` is waited for.
        """
        transport = self._transport
        if transport.is_closing():
            return
        has_half = transport.can_write_eof()
        if not (has_half or sends_more or self._paused):
            transport.close()
            return
        self.lingers = self.server.now + _LINGER_TOTAL_S
        if has_half:
            transport.write_eof()
        self.resume_reading()
        self.linger_on()

    def linger_on(self) -> None:
        """Extend a lingering close, once the response is sent."""
        if not self._unsent_bytes:
            self.deadline = min(self.server.now + _LINGER_S, self.lingers)
