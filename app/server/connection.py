"""A client's connection: HTTP/1.1 requests in order, one at a time.

`data_received` feeds the head, then the body, of the request that is under way; bytes
behind it wait in a buffer. A sweep of the server calls `expire` once the connection's
deadline has passed, so that no request needs a timer.
"""

import asyncio
import math
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from app.server.body import ChunkedBody, SizedBody
from app.server.flow_control import FlowControl
from app.server.head import Head, Malformed
from app.server.peer import Peer
from app.server.request import Request

if TYPE_CHECKING:
    from app.server.http_server import HttpServer

# Seconds for a whole head, from its first byte, or for the rest of a body that the
# application has not read.
HEADER_TIMEOUT_S = 30.0
# Of pipelined requests; then the connection reads no more.
_MAX_BUFFERED_BYTES = 64 << 10
# More of a request's body that nobody has read is not thrown away to keep a connection.
_MAX_DISCARDED_BYTES = 64 << 10
_HEAD_TOO_SLOW = "the request's head has not come in time"


class Connection(FlowControl):
    """One connection; when its `deadline` has passed, `expire` is called."""

    peer: Peer

    def __init__(self, server: "HttpServer") -> None:
        """Store the server, whose connection this is."""
        super().__init__(server)
        self._request: Request | None = None
        # What is coming; a body may be that of the last request, which nobody reads.
        self._head: Head | None = None
        self._body: SizedBody | ChunkedBody | None = None
        # Bytes behind the request that is under way.
        self._buffer = b""
        # Whether the client sends no more.
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.peer = Peer(transport, self.server.proxies)
        self.server.connections.add(self)
        self.deadline = self.server.by(self.server.keepalive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the application of the disconnect, and drop a partial head."""
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
        if self._request is None or self.lingers:
            return False
        self._request.disconnect()
        return True

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Take what the client sends."""
        if self.lingers:
            self.linger_on()
        elif self._buffer:
            self._hold(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            while data and not self.lingers:
                if self._body is not None:
                    data = self._take_body(self._body, data)
                elif self._request is None and not self._unsent_bytes:
                    data = self._take_head(data)
                else:
                    self._hold(data)
                    return
        except Malformed as error:
            self._refuse(error)

    def _hold(self, data: bytes) -> None:
        """Keep bytes behind the request under way.

        Read further while these are few, so that a disconnect is noticed.
        """
        self._buffer += data
        if len(self._buffer) > _MAX_BUFFERED_BYTES:
            self.pause_reading()

    def _take_head(self, data: bytes) -> bytes:
        head = self._head
        if head is not None:
            data = head.feed(data)
        else:
            self.deadline = self.server.by(HEADER_TIMEOUT_S)
            head, data = self.server.heads.begin(data)
            self._head = head
        if head.complete:
            self._head = None
            data = self._begin(head, data)
        return data

    def _take_body(self, body: SizedBody | ChunkedBody, data: bytes) -> bytes:
        request = self._request
        # `len` does nothing with what nobody reads.
        data = body.feed(data, len if request is None else request.take_body)
        if body.complete():
            self._body = None
            if request is not None:
                request.end_body()
            else:
                self.deadline = self.server.by(self.server.keepalive_s)
        return data

    def _begin(self, head: Head, data: bytes) -> bytes:
        """Have the application answer a request; return the bytes behind it."""
        length = head.content_length
        self.deadline = math.inf
        request = self._request = Request(self, head)
        if length is None:
            self._body = ChunkedBody()
        elif length > len(data):
            self._body = SizedBody(length)
        elif length:
            request.take_whole_body(data[:length])
            data = data[length:]
        if self._ended:
            request.disconnect()
        self.server.start(request, partial(self._done, request))
        return data

    def _refuse(self, error: Malformed) -> None:
        """Answer a malformed request, and close."""
        self.server.log.info("malformed request from %s: %s", self.peer.client, error)
        request, text = self._request, str(error)
        if request is not None:
            # Its body is malformed: for the application the client is gone.
            self._body = None
            request.disconnect()
            text = f"the body can't be read: {error}"
        else:
            request = self._request = Request(
                self, self._head or self.server.heads.none()
            )
            self._head = None
        if self._body is None:
            request.fail(text, error.status)
        else:
            # That of a request which has its response already.
            self._close()

    def response_finished(self, request: Request) -> None:
        """Take the next request, or close; the application may still be returning."""
        self.server.log_access(request)
        self._request = None
        if request.response.closes:
            self._close()
        elif not self._unsent_bytes:
            self._go_on()

    def _done(self, request: Request, task: "asyncio.Task[None]") -> None:
        """Answer in the place of an application that failed to."""
        error = None if task.cancelled() else task.exception()
        if error is None and request.response.finished:
            return
        self.server.log.error(
            "the application did not finish its response", exc_info=error
        )
        if request.response.started and not request.response.finished:
            # Only the end of the connection says that the response is not whole.
            self._transport.abort()
        request.fail("internal error; the server's log has more", 500)

    def _go_on(self) -> None:
        """Take the next request, or wait for it."""
        timeout_s = self.server.keepalive_s if self._body is None else HEADER_TIMEOUT_S
        self.deadline = self.server.by(timeout_s)
        data, self._buffer = self._buffer, b""
        self.resume_reading()
        self._take(data)
        if self._ended and self._request is None:
            self._transport.close()

    # Writing.

    def must_close(self, request: Request) -> bool:
        """Return whether the connection can't be used again after a response."""
        left = 0 if self._body is None else self._body.left
        is_in_the_way = left is None or left > _MAX_DISCARDED_BYTES
        waits_for_100 = request.expects_continue and not request.body_complete
        if waits_for_100 or is_in_the_way:
            return True
        if self._buffer:
            # Its client has sent more already, which is answered.
            return False
        return self._ended or not self.server.keeps_connections()

    def resume_writing(self) -> None:
        """Take up what waited until all was sent."""
        super().resume_writing()
        if self.lingers:
            self.linger_on()
        elif self._request is not None:
            self.deadline = math.inf
        elif not self._transport.is_closing():
            self._go_on()

    # The end.

    def expire(self) -> None:
        """Do what the deadline stands for, which has passed."""
        if self.check_progress():
            return
        if self._head is not None and self._head.started():
            self._refuse(Malformed(_HEAD_TOO_SLOW, HTTPStatus.REQUEST_TIMEOUT))
        else:
            self._transport.close()

    def stop(self) -> None:
        """Close soon, unless a request or a response is under way."""
        if self._request is None and not self._unsent_bytes:
            self.deadline = min(self.deadline, self.server.by(HEADER_TIMEOUT_S))

    def _close(self) -> None:
        """Close after a response."""
        self._buffer = b""
        if self._ended:
            self._transport.close()
        else:
            self.linger(sends_more=self._body is not None)
