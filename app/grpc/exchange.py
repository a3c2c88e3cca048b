"""An inference request over gRPC, and the response to it."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc

from app.api.asgi_exchange import SMALL_BODY_BYTES, LoopExchange
from app.api.environ import Environ
from app.api.event_loop import EventLoop
from app.api.exchange import HttpResponse, Threads
from app.batching.job import Job
from app.codec import json_text
from app.errors import GRPC_CODES, Abandoned
from app.grpc.messages import parse

_T = TypeVar("_T")

# Metadata of a call that means what the header of that name means over HTTP.
_VARIABLES = {
    name.lower(): "HTTP_" + name.upper().replace("-", "_")
    for name in (
        *("Authorization", "X-Client-Id", "X-Request-Id", "X-Request-Timeout-Ms"),
        *("Traceparent", "Tracestate"),
    )
}
# Headers of a response that are trailing metadata of a call.
_TRAILERS = (
    *("x-request-id", "x-model-version", "x-batch-size", "server-timing"),
    "retry-after",
)
_PUSHBACK = "grpc-retry-pushback-ms"
# Clients refuse more metadata than 8 KiB; a character may take 3 bytes.
_LONGEST_TEXT = 2000


class GrpcExchange(LoopExchange):
    """One request that predicts; `sent` is its message until the body is read."""

    __slots__ = ("_context", "is_canceled", "sent")

    def __init__(self, method: str, sent: bytes, context: Any, loop: EventLoop) -> None:
        """Store the full name of the method, the message and the context."""
        super().__init__(environ_of(method, context), loop)
        self.sent = sent
        self.is_canceled = False
        self._context = context

    def timeout_s(self, limit_ms: int) -> float:
        """Return the time until the call's own deadline, at most the server's.

        Raises:
            BadInput: the metadata's X-Request-Timeout-Ms is no number.
        """
        limit_s = super().timeout_s(limit_ms)
        left_s = self._context.time_remaining()
        return limit_s if left_s is None else max(min(left_s, limit_s), 0.0)

    async def body(self, limit_bytes: int) -> bytes:
        """Return the message; gRPC has checked its size."""
        sent, self.sent = self.sent, b""
        return sent

    async def message(self, name: str) -> Any:
        """Return the parsed message, which remains in `sent`, too.

        Raises:
            BadInput: it is no such message.
            Unavailable: large requests would exceed their memory.
        """
        if len(self.sent) <= SMALL_BODY_BYTES:
            return parse(name, self.sent)
        self.hold(2 * len(self.sent))
        return await self.offload(partial(parse, name, self.sent))

    async def offload(
        self, function: Callable[[], _T], threads: Threads | None = None
    ) -> _T:
        """Call a function in a thread; see Exchange.

        Raises:
            Abandoned: the call was canceled.
        """
        try:
            return await super().offload(function, threads)
        except asyncio.CancelledError:
            self._cancel()

    async def answered(self, job: Job) -> None:
        """Wait until the job is answered, or fail it at its deadline.

        Raises:
            Abandoned: the call was canceled.
        """
        try:
            await super().answered(job)
        except asyncio.CancelledError:
            self._cancel()

    def disconnected(self) -> "asyncio.Future[Any]":
        """Return a future that is never done: gRPC cancels the call's task."""
        return asyncio.get_running_loop().create_future()

    def _cancel(self) -> NoReturn:
        self.is_canceled = True
        self.client_gone()
        raise Abandoned("the client canceled the call, or its deadline passed")


def environ_of(method: str, context: Any) -> Environ:
    """Return the part of a WSGI environment that a call has."""
    environ = environ_of_metadata(context.invocation_metadata())
    environ |= {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": method,
        "RAW_URI": method,
        "QUERY_STRING": "",
        "REMOTE_ADDR": _host(context.peer()),
    }
    return environ


def environ_of_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> Environ:
    """Return what a call's metadata says, enough to check its rights."""
    environ: Environ = {"SERVER_NAME": "grpc"}
    for name, value in metadata:
        variable = _VARIABLES.get(name)
        if variable is not None and isinstance(value, str):
            environ[variable] = value
    return environ


@lru_cache(maxsize=1024)
def _host(peer: str) -> str:
    """Return the address in what gRPC calls a peer, ipv4:127.0.0.1:5000."""
    address = unquote(peer).partition(":")[2].rpartition(":")[0]
    return address.strip("[]")


async def send(context: Any, response: HttpResponse) -> bytes:
    """Return the message of a response; a failed one ends the call.

    Raises:
        grpc.aio.AbortError: the response is an error.
    """
    trailers = _trailers(response.headers)
    if response.status >= 400:  # noqa: PLR2004
        await abort(context, response.status, error_text(response), trailers)
    context.set_trailing_metadata(trailers)
    return response.body


async def abort(
    context: Any, status: int, text: str, trailers: Sequence[tuple[str, str]] = ()
) -> NoReturn:
    """End a call with the code of an HTTP status of 400 or more.

    Raises:
        grpc.aio.AbortError: always.
    """
    code = grpc.StatusCode[GRPC_CODES.get(status, "UNKNOWN")]
    await context.abort(code, text[:_LONGEST_TEXT], tuple(trailers))
    raise AssertionError("gRPC has ended the call")


def error_text(response: HttpResponse) -> str:
    """Return the text of an error response."""
    text: str = json_text.loads(response.body)["error"]
    return text


def _trailers(headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found = []
    for header, value in headers:
        name = header.lower()
        if name in _TRAILERS:
            found.append((name, value))
        if name == "retry-after":
            found.append((_PUSHBACK, str(math.ceil(float(value) * 1000))))
    return tuple(found)
