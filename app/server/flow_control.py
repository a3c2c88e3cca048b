"""A connection's transport: reading, writing, and a close that loses no response."""

import asyncio
import math
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from app.server.http_server import HttpServer

# Seconds that a client may take nothing of a response.
SEND_TIMEOUT_S = 30.0
# Seconds without a byte after which a lingering close ends, and seconds in all.
_LINGER_S, _LINGER_TOTAL_S = 2.0, 30.0


class FlowControl(asyncio.Protocol):
    """Reads and writes for a connection; everything is called on the event loop.

    `deadline` is on the monotonic clock. It is set while the kernel takes no more of
    what was written, and by the connection for its own reasons.
    """

    _transport: asyncio.Transport

    def __init__(self, server: "HttpServer") -> None:
        """Store the server, whose connection this is."""
        self.server = server
        self.deadline = math.inf
        self._paused = False
        # What the kernel had not taken of a response when that was last looked at.
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        # When a lingering close ends at the latest; 0: the connection is not closing.
        self.lingers = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport over."""
        self._transport = cast("asyncio.Transport", transport)
        # So that `pause_writing` tells of every byte that the kernel does not take.
        self._transport.set_write_buffer_limits(high=0)

    def write(self, data: bytes) -> None:
        """Send; what the kernel does not take stays in the transport."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the kernel has taken all that was written."""
        if self._unsent_bytes:
            self._drained = self.server.future()
            await self._drained

    def pause_writing(self) -> None:
        """Give the client some time to take a part of what is unsent."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self.deadline = self.server.now + SEND_TIMEOUT_S

    def resume_writing(self) -> None:
        """Resume whoever waits until all is sent."""
        self._unsent_bytes = 0
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def check_progress(self) -> bool:
        """At the deadline: return whether a response is still being sent.

        A client that has taken none of it since the last time is disconnected.
        """
        unsent_bytes = self._transport.get_write_buffer_size()
        if not unsent_bytes:
            return False
        if unsent_bytes < self._unsent_bytes:
            self.pause_writing()
        else:
            self._transport.abort()
        return True

    def pause_reading(self) -> None:
        """Read no more for now."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def linger(self, *, sends_more: bool) -> None:
        """Close, so that the client can read what was written.

        A socket that is closed while bytes come in resets the connection, and its
        client loses the response. So only the writing side is closed; what comes is
        thrown away until the client closes, too (lingering close, RFC 9112, 9.6).
        TLS has no such half: there only a client that `sends_more` is waited for.
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
        """Wait for more from a client that has had its last response."""
        if not self._unsent_bytes:
            self.deadline = min(self.server.now + _LINGER_S, self.lingers)
