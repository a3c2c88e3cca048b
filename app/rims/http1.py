"""HTTP/1.1: one client connection, its requests in order, one at a time.

What arrives behind a request waits in a buffer until that has its reply. The server's
tick calls `expire` once the connection's deadline has passed, so that no request needs
a timer.
"""

import asyncio
import json
import math
import time
from http import HTTPStatus
from http.client import responses
from typing import cast

from app.call import JSON, Call, Reply
from app.errors import BadInput
from app.rims.access_log import log_call
from app.rims.http_bodies import ChunkedBody, SizedBody
from app.rims.http_heads import END, Malformed, WireHead
from app.rims.http_server import HttpServer
from app.rims.peers import peers_by_scheme
from app.serving.loop_calls import LoopCalls

# Bytes of later requests above which reading pauses, and of a packet after which other
# connections go first.
_MAX_BUFFERED_BYTES = 64 << 10
# Bytes of a body that nobody reads, above which the connection closes.
_MAX_DISCARDED_BYTES = 64 << 10
# Seconds that a client has for its response once it has closed its sending side.
_HALF_CLOSED_S = 0.1
# Seconds without a byte after which a lingering close ends.
_LINGER_S = 2.0
# Seconds after which it ends in any case.
_LINGER_TOTAL_S = 30.0
# At the limit of connections: bytes that a client sends or reads in a second at least.
_SLOWEST_BYTES_PER_S = 1024
# An idle connection gives its place away so many seconds earlier than others.
_IDLE_LEAD_S = 0.9
_OK_WITH_JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b%b%b"
)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OK = HTTPStatus.OK.value
_BODYLESS = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)


class Connection(asyncio.Protocol):
    """A connection; its times are on the monotonic clock."""

    _transport: asyncio.Transport

    def __init__(self, calls: LoopCalls, server: HttpServer) -> None:
        """Store what answers the calls, and the server."""
        self._calls = calls
        self._server = server
        self._known_heads = server.heads.by_bytes
        self.accepted_at = time.monotonic()
        self.deadline = math.inf
        # The call that has no reply yet.
        self._call: Call | None = None
        # The body that is arriving; without a call that reads it, it is discarded.
        self._body: SizedBody | ChunkedBody | None = None
        self._is_body_read = False
        self._received = bytearray()
        self._received_at = 0.0
        # Bytes that wait: a part of a head, or requests behind the current one.
        self._buffer = b""
        # Bytes of a response that the kernel had not taken at the last look.
        self._unsent_bytes = 0
        # Whether the client has closed its sending side.
        self._has_ended = False
        # The latest end of a lingering close; 0 unless the connection lingers.
        self._lingers_until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)
        # So that `pause_writing` is called for any byte that the kernel does not take.
        self._transport.set_write_buffer_limits(high=0)
        self._peers = peers_by_scheme(transport, self._server.trusted)
        self._server.opened(self)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the request under way."""
        self._has_ended = True
        self.deadline = math.inf
        self._server.lost(self)
        self._leave(self._call)

    def eof_received(self) -> bool:
        """Note that the client closed its sending side; it may still read."""
        self._has_ended = True
        call = self._call
        if self._lingers_until or (call is None and not self._buffer):
            return False
        if self._body is not None:
            self._leave(call)
        elif call is not None:
            self._server.loop.call_later(_HALF_CLOSED_S, self._leave, call)
        else:
            self._await_request()
        return True

    def _leave(self, call: Call | None) -> None:
        """Tell the calls that the client of a call sends and reads no more."""
        if call is None or self._call is not call:
            return
        if self._body is None:
            self._calls.left(call)
        else:
            self._break_off("it is cut off")

    # Reading.

    def data_received(self, data: bytes) -> None:
        """Take a request, or a part of one, but no two."""
        if self._lingers_until:
            if not self._unsent_bytes:
                self._set_deadline()
            return
        is_first = not self._buffer
        self._buffer += data
        try:
            if self._body is not None:
                self._take_body(self._body)
            elif self._call is None and not self._unsent_bytes:
                self._take_head(is_first)
        except Malformed as error:
            self._refuse(error)
        except Exception:
            self._fail()
        if len(data) > _MAX_BUFFERED_BYTES or len(self._buffer) > _MAX_BUFFERED_BYTES:
            # One client's packets must not follow one another while others wait.
            if not self._transport.is_closing():
                self._transport.pause_reading()
            self._server.loop.call_soon(self._read_on)

    def _take_buffered(self) -> None:
        """Take the next request, unless it was taken before the loop came to this."""
        if self._buffer:
            self.data_received(b"")
            self._read_on()

    def _read_on(self) -> None:
        """Read on, unless much waits in the buffer."""
        is_full = len(self._buffer) > _MAX_BUFFERED_BYTES
        if not is_full and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take_head(self, is_first: bool) -> None:
        """Begin a call if its whole head has arrived; `is_first`: no part of it had."""
        server = self._server
        size = self._buffer.find(END) + len(END)
        sent = self._buffer[:size]
        head = self._known_heads.get(sent) or server.heads.find_alike(sent)
        if head is None:
            head, size = server.heads.read(self._buffer)
        if head is None:
            if self._has_ended:
                self._transport.close()
            elif is_first:
                self._set_deadline()
            return
        self._buffer = self._buffer[size:]
        self.deadline = math.inf
        peer = self._peers[head.forwarded_scheme]
        self._call = call = Call(head, b"", peer, self.reply)
        if self._has_ended:
            server.loop.call_later(_HALF_CLOSED_S, self._leave, call)
        length = head.content_length
        if length is not None and length <= len(self._buffer):
            call.body = self._buffer[:length]
            self._buffer = self._buffer[length:]
            self._calls.start(call)
            return
        self._body = body = ChunkedBody() if length is None else SizedBody(length)
        self._received_at = call.arrived_at
        self._is_body_read = self._calls.check(call, length or 0)
        if self._buffer:
            self._take_body(body)
        elif self._is_body_read and head.expects_continue:
            self._transport.write(_CONTINUE)

    def _take_body(self, body: SizedBody | ChunkedBody) -> None:
        part, self._buffer = body.feed(self._buffer)
        if body.is_complete:
            self._body = None
        call = self._call
        if call is None:
            if body.is_complete:
                self._await_request()
            return
        if not self._is_body_read:
            return
        self._received += part
        self._received_at = self._server.now
        if self._calls.reads(call, len(self._received)) and body.is_complete:
            call.body = bytes(self._received)
            self._received.clear()
            self._calls.start(call)

    # What can't be answered as usual.

    def _refuse(self, error: Malformed) -> None:
        """Answer a malformed head or body, and close."""
        peer = self._peers[""]
        self._server.log.info("malformed request from %s: %s", peer.client, error)
        if self._body is not None:
            self._break_off(str(error))
        else:
            head = self._server.heads.read_malformed(self._buffer)
            self._call = Call(head, b"", peer, self.reply)
            self.reply(self._call, _last_reply(str(error), error.status))

    def _break_off(self, reason: str) -> None:
        """Refuse the call whose body can't be read any further, and close."""
        if self._call is None:
            self._close()
        else:
            error = BadInput(f"the body can't be read: {reason}")
            self._calls.refuse(self._call, error)

    def _fail(self) -> None:
        """Answer with 500, and close: an error was raised that is none of a request."""
        self._server.log.exception("a request could not be answered")
        if self._call is None:
            self._close()
        else:
            text = "internal error; the server's log has more"
            self.reply(self._call, _last_reply(text, 500))

    # Replying.

    def reply(self, call: Call, reply: Reply) -> None:
        """Write the reply of the call, then wait for the next request, or close."""
        if self._call is not call:
            return
        self._call = None
        server = self._server
        head: WireHead = call.head  # type: ignore[assignment]
        # As `count_request` does: python -m bench.calls.
        server.requests_left -= 1
        if not server.requests_left:
            server.on_last_request()
        if (
            reply.status == _OK
            and reply.content_type == JSON
            and head.method != "HEAD"
            and head.keep_alive
            and server.keeps_alive
            and not server.logs_calls
            and self._body is None
            and not self._has_ended
        ):
            body = reply.body
            lines = reply.lines.encode("latin-1", "replace")
            self._transport.write(
                _OK_WITH_JSON % (len(body), lines, server.head_end, body)
            )
        elif not self._reply_otherwise(head, call, reply):
            return
        if self._buffer or self._unsent_bytes or self._body is not None:
            self._await_request()
        else:
            self.deadline = server.idle_until

    def _reply_otherwise(self, head: WireHead, call: Call, reply: Reply) -> bool:
        """Write a reply that is not the usual one; return False if it was the last."""
        server = self._server
        self._received.clear()
        has_body = head.method != "HEAD" and reply.status not in _BODYLESS
        body = reply.body if has_body else b""
        if server.logs_calls:
            log_call(server.log, call, reply, len(body))
        if self._transport.is_closing():
            return False
        closes = self._must_close(head, reply)
        end = server.closing_head_end if closes else server.head_end
        self._transport.write(_head_of_reply(head, reply) + end + body)
        if closes:
            self._close()
        return not closes

    def _must_close(self, head: WireHead, reply: Reply) -> bool:
        """Return whether a reply is the last one of the connection."""
        if self._body is not None and (
            head.expects_continue or self._body.left_bytes > _MAX_DISCARDED_BYTES
        ):
            return True
        if not head.keep_alive or "connection: close" in reply.lines.lower():
            return True
        # A request that the client has sent by now is answered.
        is_last = self._has_ended or not self._server.keeps_alive
        return is_last and not self._buffer

    def _await_request(self) -> None:
        """Take the next request, or wait for it, once the response is sent."""
        if self._unsent_bytes:
            return
        self._set_deadline()
        if self._buffer:
            # Other connections go first.
            self._server.loop.call_soon(self._take_buffered)
        elif self._has_ended:
            self._transport.close()

    # Flow control.

    def pause_writing(self) -> None:
        """Start the send timeout."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._set_deadline()

    def resume_writing(self) -> None:
        """Continue once the kernel has taken all that was written."""
        self._unsent_bytes = 0
        self._set_deadline()
        is_over = self._lingers_until or self._transport.is_closing()
        if self._call is None and not is_over:
            self._await_request()

    def _set_deadline(self) -> None:
        """Start the time that the client has for what it has to do next."""
        server = self._server
        if self._unsent_bytes:
            self.deadline = server.now + server.send_s
        elif self._lingers_until:
            self.deadline = min(server.now + _LINGER_S, self._lingers_until)
        elif self._call is not None:
            self.deadline = math.inf
        elif self._body is None and not self._buffer:
            self.deadline = server.idle_until
        else:
            self.deadline = server.deadline_in(server.header_s)

    # Closing.

    def expire(self) -> None:
        """Act on the deadline that has passed."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes:
            if unsent_bytes < self._unsent_bytes:
                self.pause_writing()
            else:
                # The client has read nothing since the last look.
                self._transport.abort()
        elif self._body is None and self._buffer.strip(b"\r\n"):
            text = "the request's head has not come in time"
            self._refuse(Malformed(text, HTTPStatus.REQUEST_TIMEOUT))
        else:
            self._transport.close()

    def stop(self) -> None:
        """Close soon, unless a request or a response is in progress."""
        if self._call is None and not self._unsent_bytes:
            soon = self._server.deadline_in(self._server.header_s)
            self.deadline = min(self.deadline, soon)

    def close(self) -> None:
        """Close at once; what is unsent is lost."""
        self._transport.abort()

    def waits_since(self) -> float:
        """Return since when the client is too slow, or has nothing to do; or inf."""
        server = self._server
        if self._unsent_bytes:
            read_bytes = self._unsent_bytes - self._transport.get_write_buffer_size()
            began_at = self.deadline - server.send_s
            return began_at + read_bytes / _SLOWEST_BYTES_PER_S
        if self._lingers_until:
            return self._lingers_until - _LINGER_TOTAL_S
        if self._call is not None:
            if self._body is None or not self._transport.is_reading():
                return math.inf
            sent_s = len(self._received) / _SLOWEST_BYTES_PER_S
            return min(self._call.arrived_at + sent_s, self._received_at)
        if self._body is None and not self._buffer:
            return self.deadline - server.keepalive_s - _IDLE_LEAD_S
        return self.deadline - server.header_s

    def _close(self) -> None:
        """Close after the last response, so that the client can read it.

        Closing a socket that still receives bytes resets the connection, and the client
        loses the response. So only the writing side is closed, and incoming bytes are
        dropped until the client closes, too: a lingering close (RFC 9112, 9.6). TLS
        can't close one side: there, only a client that sends more is waited for.
        """
        self._buffer = b""
        transport = self._transport
        has_sides = transport.can_write_eof()
        sends_more = self._body is not None or not transport.is_reading()
        if self._has_ended or not (has_sides or sends_more):
            transport.close()
            return
        self._lingers_until = self._server.now + _LINGER_TOTAL_S
        if has_sides:
            transport.write_eof()
        self._read_on()
        self._set_deadline()


def _head_of_reply(head: WireHead, reply: Reply) -> bytes:
    """Return the bytes of a reply's head, up to what all replies have in common."""
    lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, '')}"]
    length = str(len(reply.body))
    for name, value in reply.headers():
        kind = name.lower()
        if kind == "content-length":
            # Flask knows the length of a body that it leaves out of a response to
            # HEAD; any other is that of the body.
            length = value if head.method == "HEAD" else length
        elif kind != "connection":
            lines.append(f"{name}: {value}")
    if reply.status not in _BODYLESS:
        lines.append(f"Content-Length: {length}")
    lines.append("")
    return "\r\n".join(lines).encode("latin-1", "replace")


def _last_reply(text: str, status: int) -> Reply:
    """Return an error's reply, after which the connection closes."""
    body = json.dumps({"error": text}).encode()
    return Reply(body, status=status, lines="Connection: close\r\n")
