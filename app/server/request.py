"""One request as ASGI has it: its scope, `receive` and `send`.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from app.server.head import Head

if TYPE_CHECKING:
    from app.server.connection import Connection

Headers = list[tuple[bytes, bytes]]

# Of a body that the application has not taken yet; then the connection reads no more.
_BUFFERED_BYTES = 1 << 20
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_ASGI = {"version": "3.0", "spec_version": "2.5"}
_JSON = (b"content-type", b"application/json")
_WITHOUT_BODY = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)


class Request:
    """A request from its head to the end of its response."""

    __slots__ = (
        "_body",
        "_buffered_bytes",
        "_chunked",
        "_connection",
        "_delivered",
        "_disconnected",
        "_receiving",
        "began_at",
        "body_complete",
        "closes",
        "finished",
        "head",
        "response_headers",
        "sent_bytes",
        "started",
        "status",
    )

    def __init__(self, connection: "Connection", head: Head) -> None:
        """Store the connection, whose request this is, and the parsed head."""
        self._connection = connection
        self.head = head
        self.began_at = time.monotonic()
        self.status = 0
        self.sent_bytes = 0
        # Whether the connection ends with the response.
        self.closes = not head.keep_alive
        # Whether the body has come whole, and been handed to the application.
        self.body_complete = head.content_length == 0
        self._delivered = False
        self._body: list[bytes] = []
        self._buffered_bytes = 0
        self._disconnected = False
        self._receiving: asyncio.Future[dict[str, Any]] | None = None
        # Of the response: whether its head is sent, and all of it.
        self.started = self.finished = False
        self.response_headers: Iterable[tuple[bytes, bytes]] = ()
        self._chunked = False

    def scope(self) -> dict[str, Any]:
        """Return ASGI's description of the request."""
        connection, head = self._connection, self.head
        target, _, query = head.target.partition(b"?")
        if not target.startswith(b"/"):
            target = _path_of_absolute(target)
        path = unquote_to_bytes(target) if b"%" in target else target
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "method": head.method,
            "scheme": connection.scheme_of(head.headers),
            "path": path.decode(errors="surrogateescape"),
            "raw_path": target,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": connection.client,
            "server": connection.own_address,
        }

    @property
    def client(self) -> tuple[str, int] | None:
        """The address of the other end, None for a Unix socket."""
        return self._connection.client

    # What comes from the client.

    def take_body(self, part: bytes) -> None:
        """Take a part of the body, unless nobody will read it."""
        if self.finished:
            return
        self._body.append(part)
        self._buffered_bytes += len(part)
        if self._buffered_bytes > _BUFFERED_BYTES:
            self._connection.pause()
        self._give_event()

    def end_body(self) -> None:
        """Note that the body has come whole."""
        self.body_complete = True
        self._give_event()

    def disconnect(self) -> None:
        """Tell the application that the client is gone, or can't send any more."""
        self._disconnected = True
        self._give_event()

    # What the application calls.

    def receive(self) -> "asyncio.Future[dict[str, Any]]":
        """Return a future of the next event: a part of the body, or the disconnect.

        It is done if the event is there, so that nothing has to be awaited.
        """
        receiving = self._receiving = self._connection.server.future()
        if not self._give_event() and self.head.expects_continue and not self.started:
            self.head.expects_continue = False
            self._connection.write(_CONTINUE)
        return receiving

    def _give_event(self) -> bool:
        """Complete the future that the application has, if there is an event."""
        receiving = self._receiving
        if receiving is None or receiving.done():
            return False
        if self._body or (self.body_complete and not self._delivered):
            receiving.set_result(self._take_event())
        elif self._disconnected or self.finished:
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
            self._connection.resume()
        return {
            "type": "http.request",
            "body": body,
            "more_body": not self.body_complete,
        }

    async def send(self, event: Mapping[str, Any]) -> None:
        """Send the response's head with its first part, or a part of its body.

        Whatever comes after a disconnect, or after an error of the server's own, is
        dropped.

        Raises:
            RuntimeError: not an event that may come now.
        """
        kind = event["type"]
        if self.finished:
            return
        if kind == "http.response.start" and not self.status:
            self.status = event["status"]
            self.response_headers = event.get("headers", ())
        elif kind == "http.response.body" and self.status:
            more = event.get("more_body", False)
            self._write_part(event.get("body", b""), more)
            if more:
                await self._connection.drained()
        else:
            raise RuntimeError(f"unexpected ASGI event {kind!r}")

    def fail(self, text: str, status: int) -> None:
        """Answer with an error in the application's place; close the connection.

        A response of which a part is sent ends there.
        """
        self.closes = True
        if self.finished:
            return
        if self.started:
            self._finish()
        else:
            self.status, self.response_headers = status, [_JSON]
            self._write_part(json.dumps({"error": text}).encode(), more=False)

    def _write_part(self, body: bytes, more: bool) -> None:
        start = b""
        if not self.started:
            self.started = True
            self.closes = self.closes or self._connection.must_close(self)
            start = self._response_head(len(body), more)
        if self.head.method == "HEAD" or self.status in _WITHOUT_BODY:
            body = b""
        self.sent_bytes += len(body)
        if self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else _LAST_CHUNK
        self._connection.write(start + body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._give_event()
        self._connection.response_finished(self)

    def _response_head(self, size: int, more: bool) -> bytes:
        has_length = False
        lines = [_status_line(self.status), self._connection.server.common_headers]
        for name, value in self.response_headers:
            if name == b"connection":
                # All else that this field may say is the server's to say.
                self.closes = self.closes or value.lower() == b"close"
                continue
            has_length = has_length or name == b"content-length"
            lines.append(_field_name(name) + value + b"\r\n")
        if not has_length and self.status not in _WITHOUT_BODY:
            if not more:
                lines.append(b"Content-Length: %d\r\n" % size)
            elif self.head.version == "1.1":
                self._chunked = self.head.method != "HEAD"
                lines.append(b"Transfer-Encoding: chunked\r\n")
            else:
                self.closes = True
        lines.append(_CLOSE if self.closes else _KEEP_ALIVE)
        return b"".join(lines)


_CLOSE = b"Connection: close\r\n\r\n"
_KEEP_ALIVE = b"Connection: keep-alive\r\n\r\n"


@lru_cache(maxsize=128)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


# Bounded: an application may make names up.
@lru_cache(maxsize=128)
def _field_name(name: bytes) -> bytes:
    """Return the beginning of a header's line, written as is usual in HTTP/1.1."""
    return name.title() + b": "


def _path_of_absolute(target: bytes) -> bytes:
    """Return the path of a target with scheme and host, as a proxy's client sends."""
    _, found, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if found else target
