"""Kept-alive connections to a model server, and its errors as ours.

The standard library's connections, kept in a stack: whoever may send a batch a second
time has to know whether its connection was a kept one, and pools do not tell.
"""

import http.client
import json
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult

from app.errors import BasketError, Late, ModelFailed, OutOfDeviceMemory, Unavailable

# A host that swallows packets is given up after this.
_CONNECT_WITHIN_S = 3.0
# Text of the other side is repeated only so far.
_MOST_SHOWN = 200
_LONGEST_RETRY_S = 3600
# What TensorFlow says when a tensor finds no room; other text under the same status
# is of a queue.
_OUT_OF_MEMORY = "OOM"


@dataclass(frozen=True)
class Reply:
    """What the server answered; `retry_after` as it stands in the header."""

    status: int
    body: bytes
    retry_after: str


class Connections:
    """Connections to one server, for any number of threads."""

    def __init__(self, url: SplitResult, timeout_s: float) -> None:
        """Store the parts; the timeout is for each wait on the server."""
        self.host = str(url.hostname)
        self._port = url.port
        self._is_tls = url.scheme == "https"
        self._timeout_s = timeout_s
        self._kept: deque[http.client.HTTPConnection] = deque()

    def exchange(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Send a request, once, and read its answer.

        It is sent a second time, on a new connection, only if it went over one that
        was kept and that closes without a byte of an answer: a server closes what
        lies idle, and can't be asked first.

        Raises:
            Unavailable: no connection, or one that breaks.
            Late: no answer in time.
        """
        try:
            return self._exchange(method, path, body)
        except TimeoutError as error:
            raise Late(
                f"the model server {self.host} did not answer within "
                f"{self._timeout_s:g} s"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"the connection to the model server {self.host} broke "
                f"({type(error).__name__})"
            ) from error

    def close(self) -> None:
        """Close the connections that nobody uses now; may be called twice."""
        while self._kept:
            self._kept.pop().close()

    def _exchange(self, method: str, path: str, body: bytes | None) -> Reply:
        try:
            kept = self._kept.pop()
        except IndexError:
            return self._read(*self._send(self._connected(), method, path, body))
        try:
            sent = self._send(kept, method, path, body)
        except ConnectionError:
            sent = self._send(self._connected(), method, path, body)
        return self._read(*sent)

    def _connected(self) -> http.client.HTTPConnection:
        kind = (
            http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        )
        connection = kind(
            self.host, self._port, timeout=min(_CONNECT_WITHIN_S, self._timeout_s)
        )
        try:
            connection.connect()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise Unavailable(
                f"the model server {self.host} can't be reached ({reason})"
            ) from error
        connection.sock.settimeout(self._timeout_s)
        return connection

    @staticmethod
    def _send(
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _read(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
    ) -> Reply:
        try:
            body = response.read()
        except BaseException:
            connection.close()
            raise
        # One that is to be closed has no socket any more.
        if connection.sock is not None:
            self._kept.append(connection)
        return Reply(response.status, body, response.headers.get("Retry-After", ""))


def error_of(reply: Reply, host: str) -> BasketError:
    """What an answer that is none means for the batch it is for.

    Statuses are TensorFlow Serving's, which has the same one for a full device and a
    full queue, and those of Basket and of proxies between. A batch that the model
    refuses is its failure and may be tried again in parts; where nothing is wrong
    with the rows, they are not.
    """
    said = error_text(reply.body)
    about = f"the model server {host} answered {reply.status}"
    shown = f"{about}: {said}" if said else about
    match reply.status:
        case HTTPStatus.BAD_REQUEST | HTTPStatus.INTERNAL_SERVER_ERROR:
            return ModelFailed(shown)
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE | HTTPStatus.INSUFFICIENT_STORAGE:
            return OutOfDeviceMemory(shown)
        case HTTPStatus.TOO_MANY_REQUESTS if _OUT_OF_MEMORY in said:
            return OutOfDeviceMemory(shown)
        case HTTPStatus.GATEWAY_TIMEOUT:
            return Late(shown)
        case HTTPStatus.NOT_IMPLEMENTED:
            return ModelFailed(shown)
    return Unavailable(shown, _seconds(reply.retry_after))


def error_text(body: bytes) -> str:
    """The first line of {"error": "..."}, shortened; empty where there is none."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    text = value.get("error") if isinstance(value, dict) else None
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return lines[0][:_MOST_SHOWN] if lines else ""


def _seconds(retry_after: str) -> int:
    if not retry_after.isascii() or not retry_after.isdigit():
        return 1
    return max(1, min(int(retry_after[:9]), _LONGEST_RETRY_S))
