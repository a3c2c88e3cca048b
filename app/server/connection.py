"""One client connection: HTTP/1.1 requests in order, one at a time.

`data_received` feeds the head, then the body, of the current request; bytes of later,
pipelined requests wait in a buffer. The server's tick calls `expire` once the deadline
of the connection has passed, so that no request needs a timer.
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

# Header timeout: seconds for a whole head, and for the rest of an unread body.
HEADER_TIMEOUT_S = 30.0
# Bytes of pipelined requests, above which the connection pauses reading, and bytes of
# an unread body, above which it closes instead of reading them.
_MAX_BUFFERED_BYTES = _MAX_DISCARDED_BYTES = 64 << 10
_IDLE_LEAD_S = 0.9  # An idle connection gives its place away earlier than others.
_TOO_SLOW = "the request's head has not come in time"


class Connection(FlowControl):
    """A connection; `expire` is called when its `deadline` has passed."""

    peer: Peer

    def __init__(self, server: "HttpServer") -> None:
        """Store the server."""
        super().__init__(server)
        self._request: Request | None = None
        # The head or body that is arriving; an unread body may be the last request's.
        self._head: Head | None = None
        self._body: SizedBody | ChunkedBody | None = None
        # Bytes behind the current request.
        self._buffer = b""
        # Whether the client has closed its sending side.
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self.peer = Peer(transport, self.server.proxies)
        self.server.opened(self)
        self.deadline = self.server.by(self.server.keepalive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the application of the disconnect, and drop a partial head."""
        self._ended, self._head = True, None
        self.resume_writing()
        self.deadline = math.inf
        self.server.lost(self)
        if self._request is not None:
            self._request.disconnect()

    def eof_received(self) -> bool:
        """Note that the client closed its sending side; it may still read."""
        self._ended = True
        if self.lingers or (self._request is None and not self._buffer):
            return False
        if self._request is not None:
            self._request.disconnect()
        return True

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client."""
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
        """Buffer bytes; keep reading up to a limit, to notice a disconnect."""
        self._buffer += data
        if len(self._buffer) > _MAX_BUFFERED_BYTES:
            self.pause_reading()

    def _take_head(self, data: bytes) -> bytes:
        if self._head is not None:
            data = self._head.feed(data)
        else:
            self.deadline = self.server.by(HEADER_TIMEOUT_S)
            self._head, data = self.server.heads.begin(data)
        if self._head.complete:
            head, self._head = self._head, None
            data = self._begin(head, data)
        return data

    def _take_body(self, body: SizedBody | ChunkedBody, data: bytes) -> bytes:
        request = self._request
        # `len` drops an unread body.
        data = body.feed(data, len if request is None else request.take_body)
        if body.complete():
            self._body = None
            if request is not None:
                request.end_body()
            elif not self._unsent_bytes:
                self.deadline = self.server.by(self.server.keepalive_s)
        return data

    def _begin(self, head: Head, data: bytes) -> bytes:
        """Start a request; return the bytes behind it."""
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
            # The body is malformed: to the application the client disconnected.
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
            # The body belongs to a request that has its response.
            self._close()

    def response_finished(self, request: Request) -> None:
        """Take the next request, or close; the application may still be running."""
        self.server.log_access(request)
        self._request = None
        if request.response.closes:
            self._close()
        elif not self._unsent_bytes:
            self._next_request()

    def _done(self, request: Request, task: "asyncio.Task[None]") -> None:
        """Answer with 500 if the application did not finish its response."""
        error = None if task.cancelled() else task.exception()
        if error is None and request.response.finished:
            return
        self.server.log.error(
            "the application did not finish its response", exc_info=error
        )
        if request.response.started and not request.response.finished:
            # Only closing the connection shows that the response is incomplete.
            self._transport.abort()
        request.fail("internal error; the server's log has more", 500)

    def _next_request(self) -> None:
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
        """Return whether the connection must close after the response."""
        left = 0 if self._body is None else self._body.left
        is_in_the_way = left is None or left > _MAX_DISCARDED_BYTES
        waits_for_100 = request.expects_continue and not request.body_complete
        if waits_for_100 or is_in_the_way:
            return True
        if self._buffer:
            # The client has sent another request, which is answered.
            return False
        return self._ended or not self.server.keeps_connections()

    def resume_writing(self) -> None:
        """Continue once the kernel has taken all that was written."""
        super().resume_writing()
        if self.lingers:
            self.linger_on()
        elif self._request is not None:
            self.deadline = math.inf
        elif not self._transport.is_closing():
            self._next_request()

    def expire(self) -> None:
        """Act on the deadline that has passed."""
        if self.check_progress():
            return
        if self._head is not None and self._head.started():
            self._refuse(Malformed(_TOO_SLOW, HTTPStatus.REQUEST_TIMEOUT))
        else:
            self._transport.close()

    def stop(self) -> None:
        """Close soon, unless a request or a response is in progress."""
        if self._request is None and not self._unsent_bytes:
            self.deadline = min(self.deadline, self.server.by(HEADER_TIMEOUT_S))

    def waits_since(self) -> float:
        """Return since when the server waits for the client, inf if it does not."""
        if self.lingers or self._unsent_bytes:
            return self.unread_since()
        if self._request is not None:
            return math.inf if self._paused else self._request.waits_since()
        if self._head is None and self._body is None:
            return self.deadline - self.server.keepalive_s - _IDLE_LEAD_S
        return self.deadline - HEADER_TIMEOUT_S

    def _close(self) -> None:
        """Close after a response."""
        self._buffer = b""
        if self._ended:
            self._transport.close()
        else:
            self.linger(sends_more=self._body is not None)
