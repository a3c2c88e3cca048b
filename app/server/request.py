"""One request: its ASGI scope, `receive` and `send`.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.server.flow_control import SLOWEST_BYTES_PER_S
from app.server.head import Head
from app.server.response import Response

if TYPE_CHECKING:
    from app.server.connection import Connection

# Bytes of a body that the application has not received, above which reading pauses. So
# one client sends a packet or two in a round of the event loop, not as many as it can.
_BUFFERED_BYTES = 64 << 10
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ASGI = {"version": "3.0", "spec_version": "2.5"}
_JSON = (b"content-type", b"application/json")


class Request:
    """A request from its head to the end of its response."""

    __slots__ = (
        "_body",
        "_buffered_bytes",
        "_connection",
        "_delivered",
        "_disconnected",
        "_received_at",
        "_received_bytes",
        "_receiving",
        "began_at",
        "body_complete",
        "expects_continue",
        "head",
        "response",
    )

    def __init__(self, connection: "Connection", head: Head) -> None:
        """Store the connection and the parsed head."""
        self._connection = connection
        self.head = head
        self.response = Response(head)
        # Whether the client waits for 100 Continue.
        self.expects_continue = head.expects_continue
        self.began_at = self._received_at = time.monotonic()
        self._received_bytes = 0
        # Whether the body has arrived, and whether the application has received it.
        self.body_complete = head.content_length == 0
        self._delivered = False
        self._body: list[bytes] = []
        self._buffered_bytes = 0
        self._disconnected = False
        self._receiving: asyncio.Future[dict[str, Any]] | None = None

    def scope(self) -> dict[str, Any]:
        """Return ASGI's description of the request."""
        peer, head = self._connection.peer, self.head
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "method": head.method,
            "scheme": peer.scheme(head.headers),
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            # A copy, as the head is cached.
            "headers": [*head.headers],
            "client": peer.client,
            "server": peer.server,
        }

    @property
    def client(self) -> tuple[str, int] | None:
        """The client's address, None for a Unix socket."""
        return self._connection.peer.client

    # Called by the connection.

    def take_body(self, part: bytes) -> None:
        """Buffer a part of the body, unless the response is finished."""
        if self.response.finished:
            return
        self._received_at = self._connection.server.now
        self._received_bytes += len(part)
        self._body.append(part)
        self._buffered_bytes += len(part)
        if self._buffered_bytes > _BUFFERED_BYTES:
            self._connection.pause_reading()
        self._give_event()

    def take_whole_body(self, body: bytes) -> None:
        """Buffer a body that came with the head."""
        self._body.append(body)
        self.body_complete = True

    def end_body(self) -> None:
        """Note that the body has arrived."""
        self.body_complete = True
        self._give_event()

    def waits_since(self) -> float:
        """Return since when the body arrives too slowly, inf if it does not."""
        if self.body_complete:
            return math.inf
        sent_s = self._received_bytes / SLOWEST_BYTES_PER_S
        return min(self.began_at + sent_s, self._received_at)

    def disconnect(self) -> None:
        """Notify the application that the client disconnected, or sends no more."""
        self._disconnected = True
        self._give_event()

    # Called by the application.

    def receive(self) -> "asyncio.Future[dict[str, Any]]":
        """Return a future of the next event: a part of the body, or the disconnect.

        It is done already if the event has happened.
        """
        receiving = self._receiving = self._connection.server.future()
        if (
            not self._give_event()
            and self.expects_continue
            and not self.response.started
        ):
            self.expects_continue = False
            self._connection.write(_CONTINUE)
        return receiving

    def _give_event(self) -> bool:
        """Complete the application's future if there is an event; return whether."""
        receiving = self._receiving
        if receiving is None or receiving.done():
            return False
        if self._body or (self.body_complete and not self._delivered):
            receiving.set_result(self._take_event())
        elif self._disconnected or self.response.finished:
            receiving.set_result({"type": "http.disconnect"})
        else:
            return False
        self._receiving = None
        return True

    def _take_event(self) -> dict[str, Any]:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._buffered_bytes = 0
        self._delivered = self.body_complete
        if not self.body_complete:
            self._connection.resume_reading()
        return {
            "type": "http.request",
            "body": body,
            "more_body": not self.body_complete,
        }

    async def send(self, event: Mapping[str, Any]) -> None:
        """Send the response's head with the first part of its body, or a later part.

        Events after a disconnect, or after an error response of the server, are
        dropped.

        Raises:
            RuntimeError: the event is out of order.
            ValueError: a header contains a line end.
        """
        kind, response = event["type"], self.response
        if response.finished:
            return
        if kind == "http.response.start" and not response.status:
            response.start(event)
        elif kind == "http.response.body" and response.status:
            more = event.get("more_body", False)
            self._send_part(event.get("body", b""), more)
            if more:
                await self._connection.drained()
        else:
            raise RuntimeError(f"unexpected ASGI event {kind!r}")

    def fail(self, text: str, status: int) -> None:
        """Answer with an error instead of the application; close the connection.

        A response that has begun ends there.
        """
        response = self.response
        response.closes = True
        if response.finished:
            return
        if response.started:
            self._finish()
        else:
            response.start({"status": status, "headers": [_JSON]})
            self._send_part(json.dumps({"error": text}).encode(), more=False)

    def _send_part(self, body: bytes, more: bool) -> None:
        connection, response = self._connection, self.response
        if not response.started and connection.must_close(self):
            response.closes = True
        connection.write(response.part(body, more, connection.server.common_headers))
        if not more:
            self._finish()

    def _finish(self) -> None:
        self.response.finished = True
        self._give_event()
        self._connection.response_finished(self)
