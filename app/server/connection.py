"""A client's connection: HTTP/1.1 requests in order, one at a time.

Bytes go through it in one direction each: `data_received` feeds the head, then the
body, of the request that is under way; what lies behind it waits in a buffer, and the
socket is not read meanwhile. `write` sends. A sweep of the worker calls `expire` once
the connection's deadline has passed, so that no request needs a timer.
"""

import asyncio
import math
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from app.server.body import ChunkedBody, SizedBody
from app.server.head import Head, Malformed
from app.server.request import Headers, Request

if TYPE_CHECKING:
    from app.server.http_server import HttpServer

# Seconds for a whole head, from its first byte, or for the rest of a body that the
# application has not read.
HEADER_TIMEOUT_S = 30.0
# Seconds that a client may take nothing of a response.
SEND_TIMEOUT_S = 30.0
# Seconds without a byte after which a lingering close ends, and seconds in all.
_LINGER_S, _LINGER_TOTAL_S = 2.0, 30.0
# More of a request's body that nobody has read is not thrown away to keep a connection.
_MAX_DISCARDED_BYTES = 64 << 10


class Connection(asyncio.Protocol):
    """One connection; everything is called on the event loop.

    `deadline` is on the monotonic clock; when it has passed, `expire` is called.
    """

    _transport: asyncio.Transport

    def __init__(self, server: "HttpServer") -> None:
        """Store the server, whose connection this is."""
        self.server = server
        self.deadline = math.inf
        self.client: tuple[str, int] | None = None
        self.own_address: tuple[str, int | None] | None = None
        self._scheme = "http"
        self._is_trusted = False
        self._request: Request | None = None
        # asyncio itself keeps no task alive.
        self._tasks: set[asyncio.Task[None]] = set()
        # The head that is coming, and the body that is, of the request under way or,
        # if there is none, of the last one.
        self._head: Head | None = None
        self._body: SizedBody | ChunkedBody | None = None
        # Bytes behind the request that is under way.
        self._buffer = b""
        # Whether reading is paused, and whether the client sends no more.
        self._paused = self._ended = False
        # When a lingering close ends at the latest; 0: the connection is not closing.
        self._lingers_until = 0.0
        # What the kernel had not taken of a response when that was last looked at.
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)
        # So that `pause_writing` tells of every byte that the kernel does not take.
        self._transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname")
        self.client = (peer[0], peer[1]) if isinstance(peer, tuple) else None
        self.own_address = (own[0], own[1]) if isinstance(own, tuple) else (own, None)
        if transport.get_extra_info("sslcontext"):
            self._scheme = "https"
        self._is_trusted = self.server.trusts(self.client)
        self.server.connections.add(self)
        self.deadline = self.server.now + self.server.keepalive_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application, and let go of what is half read."""
        self._ended = True
        self._head = None
        self.resume_writing()
        self.deadline = math.inf
        self.server.lost(self)
        if self._request is not None:
            self._request.disconnect()

    def eof_received(self) -> bool:
        """Note that the client sends no more; it may still read a response."""
        self._ended = True
        if self._request is None or self._lingers_until:
            return False
        self._request.disconnect()
        return True

    def scheme_of(self, headers: Headers) -> str:
        """Return the scheme that the client used, as a trusted proxy tells it."""
        if self._is_trusted:
            secure = self.server.secure_headers
            for name, value in headers:
                if name in secure:
                    return "https" if value == secure[name] else "http"
        return self._scheme

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if self._lingers_until:
            if not self._unsent_bytes:
                self._linger_on()
        elif self._buffer:
            self._buffer += data
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            while data and not self._lingers_until:
                if self._body is not None:
                    data = self._take_body(self._body, data)
                elif self._request is None and not self._unsent_bytes:
                    data = self._take_head(data)
                else:
                    self._buffer = data
                    self.pause()
                    return
        except Malformed as error:
            self._refuse(error)

    def _take_head(self, data: bytes) -> bytes:
        head = self._head
        if head is None:
            head = self._head = Head(self.server.limits)
            self.deadline = self.server.now + HEADER_TIMEOUT_S
        data = head.feed(data)
        if head.complete:
            self._head = None
            self._begin(head)
        return data

    def _take_body(self, body: SizedBody | ChunkedBody, data: bytes) -> bytes:
        request = self._request
        data = body.feed(data, _discard if request is None else request.take_body)
        if body.complete():
            self._body = None
            if request is not None:
                request.end_body()
            else:
                self.deadline = self.server.now + self.server.keepalive_s
        return data

    def _begin(self, head: Head) -> None:
        """Have the application answer a request."""
        length = head.content_length
        if length is None:
            self._body = ChunkedBody()
        elif length:
            self._body = SizedBody(length)
        self.deadline = math.inf
        request = self._request = Request(self, head)
        task = self.server.start(request)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, request))

    def _refuse(self, error: Malformed) -> None:
        """Answer a malformed request, and close."""
        self.server.log.info("malformed request from %s: %s", self.client, error)
        request, text = self._request, str(error)
        if request is not None:
            # Its body is malformed: for the application the client is gone.
            self._body = None
            request.disconnect()
            text = f"the body can't be read: {error}"
        else:
            request = self._request = Request(
                self, self._head or Head(self.server.limits)
            )
            self._head = None
        if self._body is None:
            request.fail(text, error.status)
        else:
            # That of a request which has its response already.
            self._close(request)

    def response_finished(self, request: Request) -> None:
        """Take the next request, or close; the application may still be returning."""
        self.server.log_access(request)
        self._request = None
        if request.closes:
            self._close(request)
        elif not self._unsent_bytes:
            self._go_on()

    def _done(self, request: Request, task: "asyncio.Task[None]") -> None:
        """Answer in the place of an application that failed to."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and request.finished:
            return
        self.server.log.error(
            "the application did not finish its response", exc_info=error
        )
        if request.started and not request.finished:
            # Only the end of the connection says that the response is not whole.
            self._transport.abort()
        request.fail("internal error; the server's log has more", 500)

    def _go_on(self) -> None:
        """Take the next request, or wait for it."""
        timeout_s = self.server.keepalive_s if self._body is None else HEADER_TIMEOUT_S
        self.deadline = self.server.now + timeout_s
        data, self._buffer = self._buffer, b""
        self.resume()
        self._take(data)
        if self._ended and self._request is None:
            self._transport.close()

    # Writing.

    def must_close(self, request: Request) -> bool:
        """Return whether the connection can't be used again after a response."""
        left = 0 if self._body is None else self._body.left
        is_in_the_way = left is None or left > _MAX_DISCARDED_BYTES
        waits_for_100 = request.head.expects_continue and not request.body_complete
        ends = self._ended or waits_for_100 or is_in_the_way
        return ends or not self.server.keeps_connections()

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
        """Go on with whatever waited until all was sent."""
        was_unsent, self._unsent_bytes = self._unsent_bytes, 0
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._lingers_until:
            self._linger_on()
        elif self._request is not None:
            self.deadline = math.inf
        elif was_unsent and not self._transport.is_closing():
            self._go_on()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # The end.

    def expire(self) -> None:
        """Do what the deadline stands for, which has passed."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes and unsent_bytes < self._unsent_bytes:
            self.pause_writing()
        elif unsent_bytes:
            self._transport.abort()
        elif self._head is not None and self._head.started():
            text = "the request's head has not come in time"
            self._refuse(Malformed(text, HTTPStatus.REQUEST_TIMEOUT))
        else:
            self._transport.close()

    def stop(self) -> None:
        """Close soon, unless a request or a response is under way."""
        if self._request is None and not self._unsent_bytes:
            soon = self.server.now + self.server.keepalive_s
            self.deadline = min(self.deadline, soon)

    def _close(self, request: Request) -> None:
        """Close after a response, so that the client can read it.

        A socket that is closed while bytes come in resets the connection, and its
        client loses the response. So only the writing side is closed; what comes is
        thrown away until the client closes, too (lingering close, RFC 9112, 9.6).
        """
        self._buffer = b""
        transport = self._transport
        tells_end = transport.can_write_eof()
        if transport.is_closing():
            return
        if self._ended or not (tells_end or self._paused or self._body is not None):
            transport.close()
            return
        self._lingers_until = self.server.now + _LINGER_TOTAL_S
        if tells_end:
            transport.write_eof()
        self.resume()
        if not self._unsent_bytes:
            self._linger_on()

    def _linger_on(self) -> None:
        self.deadline = min(self.server.now + _LINGER_S, self._lingers_until)


def _discard(part: bytes) -> None:
    """Drop a part of a body that nobody reads."""
