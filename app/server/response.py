"""The response to one request: ASGI events to HTTP/1.1 bytes."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from app.server.head import Head

_LAST_CHUNK = b"0\r\n\r\n"
_CLOSE = b"Connection: close\r\n\r\n"
_KEEP_ALIVE = b"Connection: keep-alive\r\n\r\n"
_CONNECTION, _CONTENT_LENGTH = b"Connection: ", b"Content-Length: "
_WITHOUT_BODY = (HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value)


class Response:
    """One response: how much of it is sent, and the bytes to send next.

    `status` is 0 until the application sends it. `sent_bytes` counts the body.
    `closes` is true if the connection ends with the response.
    """

    __slots__ = (
        "_chunked",
        "_has_body",
        "_head",
        "_left_bytes",
        "closes",
        "finished",
        "headers",
        "sent_bytes",
        "started",
        "status",
    )

    def __init__(self, head: Head) -> None:
        """Store the head of the request."""
        self._head = head
        self._chunked = False
        self._has_body = True
        # Bytes missing to the announced length; None: there is none.
        self._left_bytes: int | None = None
        self.closes = not head.keep_alive
        self.status = 0
        self.headers: Iterable[tuple[bytes, bytes]] = ()
        self.sent_bytes = 0
        # Whether the head is sent, and whether all is.
        self.started = self.finished = False

    def start(self, event: Mapping[str, Any]) -> None:
        """Take ASGI's `http.response.start`."""
        self.status = event["status"]
        self.headers = event.get("headers", ())

    def part(self, body: bytes, more: bool, common_headers: bytes) -> bytes:
        """Return the bytes for a part of the body, with the head before the first.

        Raises:
            ValueError: a header contains a line end.
        """
        start = b""
        if not self.started:
            start = self._head_bytes(len(body), more, common_headers)
            self.started = True
        if not self._has_body:
            body = b""
        elif self._left_bytes is not None:
            # More than announced would be read as the next response.
            body = body[: self._left_bytes]
            self._left_bytes -= len(body)
        self.sent_bytes += len(body)
        if self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else _LAST_CHUNK
        if not more and self._has_body and self._left_bytes:
            # Only closing the connection shows that a response is incomplete.
            self.closes = True
        return start + body

    def _head_bytes(self, size: int, more: bool, common_headers: bytes) -> bytes:
        self._has_body = (
            self._head.method != "HEAD" and self.status not in _WITHOUT_BODY
        )
        lines = [_status_line(self.status)]
        length = None
        for name, value in self.headers:
            field = _field_name(name)
            if field == _CONNECTION:
                # The server decides what else this field says.
                self.closes = self.closes or value.lower() == b"close"
                continue
            if field == _CONTENT_LENGTH:
                length = int(value)
            lines.append(b"%b%b\r\n" % (field, value))
        self._left_bytes = length
        if length is None and self.status not in _WITHOUT_BODY:
            self._frame(size, more, lines)
        fields = b"".join(lines)
        if not fields.count(b"\n") == fields.count(b"\r") == len(lines):
            raise ValueError("a header of the response contains a line end")
        return fields + common_headers + (_CLOSE if self.closes else _KEEP_ALIVE)

    def _frame(self, size: int, more: bool, lines: list[bytes]) -> None:
        """Add the field that says where a body of unannounced length ends."""
        if not more:
            self._left_bytes = size
            lines.append(b"Content-Length: %d\r\n" % size)
        elif self._head.version == "1.1":
            self._chunked = self._has_body
            lines.append(b"Transfer-Encoding: chunked\r\n")
        else:
            self.closes = True


@lru_cache(maxsize=128)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


# Bounded, as an application may invent names.
@lru_cache(maxsize=128)
def _field_name(name: bytes) -> bytes:
    """Return the start of a header line, in HTTP/1.1's usual spelling."""
    return name.title() + b": "
