"""Send requests as bytes, and parse answers as strictly as a proxy does."""

import http.client
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2}) [^\r\n]*")
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Request:
    """One request; `path` has its query, and both are Latin-1 as on the wire."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def wire(self) -> bytes:
        """Return the bytes to send, with the body's true length."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body or self.method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1", "replace") + self.body


@dataclass(frozen=True)
class Answer:
    """One answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class NotHttp(Exception):
    """The server sent something else than an HTTP response."""


class Connection:
    """A keep-alive connection, opened when it is needed."""

    def __init__(self, port: int, timeout_s: float = 30) -> None:
        """Store where the server listens."""
        self._port = port
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._read = b""

    def ask(self, request: Request) -> Answer:
        """Send a request and return its answer.

        Raises:
            NotHttp: the answer is malformed, or none came.
            OSError: the connection cannot be made, or was lost.
        """
        wire = request.wire()
        fresh = self._socket is None
        try:
            self._connect().sendall(wire)
            answer = self._receive(request.method == "HEAD")
        except (NotHttp, ConnectionError):
            self.close()
            if fresh:
                raise
            # The server may close an idle connection.
            return self.ask(request)
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def talk(
        self, parts: Sequence[bytes], *, half_close: bool, pause_s: float = 0
    ) -> list[Answer]:
        """Send bytes as they are on a new connection, and return all answers.

        Without `half_close` the connection is closed right after the last part.

        Raises:
            NotHttp: an answer is malformed.
            OSError: the connection cannot be made, or no answer came in time.
        """
        self.close()
        try:
            connection = self._connect()
            _send_all(connection, parts, pause_s)
            if not half_close:
                return []
            return self._receive_all(parts[0].startswith(b"HEAD "))
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._read = None, b""

    def _connect(self) -> socket.socket:
        if self._socket is None:
            address = ("127.0.0.1", self._port)
            self._socket = socket.create_connection(address, self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _receive_all(self, is_head: bool) -> list[Answer]:
        answers = []
        try:
            while True:
                answers.append(self._receive(is_head and not answers))
        except ConnectionResetError:
            # The server closed the connection before it had read all bytes.
            return answers
        except NotHttp:
            if self._read:
                raise
            return answers

    def _receive(self, is_head: bool) -> Answer:
        while b"\r\n\r\n" not in self._read:
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise NotHttp(f"the answer begins with {line[:80]!r}")
        pairs = [each.decode("latin-1").partition(": ") for each in lines]
        headers = {name.lower(): value for name, _, value in pairs}
        if len(headers) < len(lines):
            raise NotHttp(f"an answer has a header twice: {head[:400]!r}")
        status = int(found[1])
        if status == http.client.CONTINUE:
            return self._receive(is_head)
        if not headers.get("content-length", "").isdigit():
            raise NotHttp(f"an answer without a length: {head[:200]!r}")
        size = 0 if is_head else int(headers["content-length"])
        while len(self._read) < size:
            self._more()
        body, self._read = self._read[:size], self._read[size:]
        return Answer(status, headers, body)

    def _more(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise NotHttp(f"the connection ended behind {self._read[:80]!r}")
        self._read += data


def _send_all(
    connection: socket.socket, parts: Sequence[bytes], pause_s: float
) -> None:
    try:
        for part in parts:
            connection.sendall(part)
            if pause_s:
                time.sleep(pause_s)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        # The server may answer before it has everything; the answer is read.
        return
