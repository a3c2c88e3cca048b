"""Keep-alive connections to a model server, and its errors as Basket's.

They are the standard library's, in a stack: a batch may be sent again only if its
connection was an idle one, which connection pools do not tell.
"""

import contextlib
import http.client
import json
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import SplitResult

from app.engines.loading import without_machine
from app.engines.refusal import refusal
from app.errors import (
    BasketError,
    Late,
    ModelFailed,
    OutOfDeviceMemory,
    Unavailable,
)

# For a host that drops packets.
_CONNECT_TIMEOUT_S = 3.0
# Of the server's error text.
_MAX_SHOWN_CHARS = 200
_MAX_RETRY_S = 3600
# In TensorFlow's text for a tensor that can't be allocated; a full queue has the same
# status and another text.
_OUT_OF_MEMORY = "OOM"


_Sent: TypeAlias = tuple[http.client.HTTPConnection, http.client.HTTPResponse]


@dataclass(frozen=True)
class ServingReply:
    """A response of the server; `retry_after` is the header's text."""

    status: int
    body: bytes
    retry_after: str


class Connections:
    """Keep-alive connections to one server, for any number of threads."""

    def __init__(self, url: SplitResult, timeout_s: float) -> None:
        """Store the address; `timeout_s` bounds each wait for the server."""
        self._host = str(url.hostname)
        self._is_tls = url.scheme == "https"
        # http.client would look for a port in an IPv6 address.
        self._port = (443 if self._is_tls else 80) if url.port is None else url.port
        self._timeout_s = timeout_s
        self._idle: deque[http.client.HTTPConnection] = deque()

    def exchange(
        self, method: str, path: str, body: bytes | None = None
    ) -> ServingReply:
        """Send a request once and return the response.

        It is sent a second time, on a new connection, only if its connection was idle
        before and closes without a byte of a response: a server may close idle
        connections at any time.

        Raises:
            Unavailable: no connection, or one that breaks.
            Late: no response in time.
        """
        try:
            connection, response = self._send(method, path, body)
            try:
                content = response.read()
            except BaseException:
                connection.close()
                raise
        except TimeoutError as error:
            raise Late(
                f"the model server did not answer within {self._timeout_s:g} s"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the connection to the model server broke ({type(error).__name__})"
            ) from error
        # After Connection: close it has no socket.
        if connection.sock is not None:
            self._idle.append(connection)
        return ServingReply(
            response.status, content, response.headers.get("Retry-After", "")
        )

    def close(self) -> None:
        """Close idle connections; may be called twice."""
        while self._idle:
            self._idle.pop().close()

    def _send(self, method: str, path: str, body: bytes | None) -> _Sent:
        with contextlib.suppress(IndexError, ConnectionError):
            return _send(self._idle.pop(), method, path, body)
        return _send(self._connect(), method, path, body)

    def _connect(self) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        )
        connection = kind(
            self._host, self._port, timeout=min(_CONNECT_TIMEOUT_S, self._timeout_s)
        )
        try:
            connection.connect()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise Unavailable(
                f"the model server can't be reached ({reason})"
            ) from error
        connection.sock.settimeout(self._timeout_s)
        return connection


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
) -> _Sent:
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()
    except BaseException:
        connection.close()
        raise


def error_from(reply: ServingReply) -> BasketError:
    """Return the error of a batch that an unsuccessful response stands for.

    Statuses are those of TensorFlow Serving, which has the same one for a full device
    and a full queue, of Basket, and of proxies between. A batch that the model refuses
    may be retried in parts; after other errors it is not. Clients read the text, so it
    does not name the server's host.
    """
    text = error_text(reply.body)
    about = f"the model server answered {reply.status}"
    shown = f"{about}: {text}" if text else about
    match reply.status:
        case HTTPStatus.BAD_REQUEST:
            return refusal(about, text)
        case HTTPStatus.INTERNAL_SERVER_ERROR | HTTPStatus.NOT_IMPLEMENTED:
            return ModelFailed(shown)
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE | HTTPStatus.INSUFFICIENT_STORAGE:
            return OutOfDeviceMemory(shown)
        case HTTPStatus.TOO_MANY_REQUESTS if _OUT_OF_MEMORY in text:
            return OutOfDeviceMemory(shown)
        case HTTPStatus.GATEWAY_TIMEOUT:
            return Late(shown)
    return Unavailable(shown, _seconds(reply.retry_after))


def error_text(body: bytes) -> str:
    """Return the first line of {"error": "..."}, shortened, or an empty text."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    text = value.get("error") if isinstance(value, dict) else None
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return without_machine(lines[0])[:_MAX_SHOWN_CHARS] if lines else ""


def _seconds(retry_after: str) -> int:
    if not retry_after.isascii() or not retry_after.isdigit():
        return 1
    return max(1, min(int(retry_after[:9]), _MAX_RETRY_S))
