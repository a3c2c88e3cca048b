"""gRPC's calls that predict: a method is a path, metadata are headers.

Refused calls end with the code of their HTTP status, and headers of replies are
trailing metadata.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc

from app.call import Call, Head, Peer, Reply
from app.codec import json_text
from app.codec.bounds import INLINE_BYTES
from app.errors import GRPC_CODES, BasketError
from app.protocols.grpc_messages import parse
from app.protocols.methods import Predicting
from app.repository.routing import Target
from app.serving.loop_calls import LoopCalls
from app.serving.predictor import Predictor

# Metadata of a call that mean what the headers of these names do over HTTP.
_HEADERS = frozenset(
    (
        "authorization",
        "x-client-id",
        "x-request-id",
        "x-request-timeout-ms",
        "traceparent",
        "tracestate",
    )
)
# Headers of a reply that are trailing metadata of a call.
_TRAILERS = frozenset(
    (
        "x-request-id",
        "x-model-version",
        "x-batch-size",
        "server-timing",
        "retry-after",
    )
)
_RETRY_AFTER = "retry-after"
_PUSHBACK = "grpc-retry-pushback-ms"
# Clients refuse more metadata than 8 KiB; a character may take 3 bytes.
_LONGEST_TEXT = 2000
_REMEMBERED_HEADS = 1024
_MODELS_UNKNOWN = Target()
_NO_HEAD = Head("POST", "", "", {})

Metadata = Iterable[tuple[str, str | bytes]]


class PredictingCalls:
    """Answers calls that predict; all methods are called on the event loop."""

    def __init__(
        self,
        predictor: Predictor,
        calls: LoopCalls,
        count_request: Callable[[], None],
    ) -> None:
        """Store the parts; `count_request` is called for each request."""
        self._predictor = predictor
        self._calls = calls
        self._count_request = count_request
        # The number of requests that are not answered yet.
        self.pending = 0
        # Returns the head of a call by its method, metadata and target.
        self.head_of = lru_cache(_REMEMBERED_HEADS)(self._new_head)

    def handler(self, method: Predicting) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Return what answers the only message of a call with a message."""

        # gRPC looks at the kind of a function at each call, and long at a partial.
        async def predict(sent: bytes, context: Any) -> bytes:
            call, replied = self._begin(method, sent, context)
            try:
                reply = await replied
            finally:
                self.pending -= 1
                if replied.cancelled():
                    self._calls.left(call)
            if reply.status >= 400:  # noqa: PLR2004
                return await send(context, reply)
            context.set_trailing_metadata(_trailers(reply))
            return reply.body

        return predict

    async def answer(self, method: Predicting, sent: bytes, context: Any) -> Reply:
        """Return the reply to one message of a stream.

        Raises:
            asyncio.CancelledError: the client canceled the call.
        """
        call, replied = self._begin(method, sent, context)
        try:
            return await replied
        finally:
            self.pending -= 1
            if replied.cancelled():
                self._calls.left(call)

    def refusal(self, method: Predicting, error: BasketError, context: Any) -> Reply:
        """Return the reply to a call that is refused before its message."""
        replies: list[Reply] = []
        call = Call(
            self.head_of(method, tuple(context.invocation_metadata())),
            b"",
            _peer(context.peer()),
            lambda _, reply: replies.append(reply),
        )
        self._count_request()
        self._calls.refuse(call, error)
        return replies[0]

    def _new_head(
        self, method: Predicting, metadata: Metadata, target: Target = _MODELS_UNKNOWN
    ) -> Head:
        head = Head("POST", method.path, "", headers_of(metadata))
        self._predictor.direct(head, method.protocol, target)
        return head

    def _begin(
        self, method: Predicting, sent: bytes, context: Any
    ) -> "tuple[Call, asyncio.Future[Reply]]":
        """Return the call of a message, and the future of its reply."""
        self.pending += 1
        self._count_request()
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[Reply] = loop.create_future()

        def reply_to(call: Call, reply: Reply) -> None:
            if not replied.done():
                replied.set_result(reply)

        # The message names the model, so that the call's own head comes later.
        call = Call(_NO_HEAD, sent, _peer(context.peer()), reply_to)
        if len(sent) <= INLINE_BYTES:
            self._start(method, context, call)
            return call, replied
        call.head = self.head_of(method, tuple(context.invocation_metadata()))
        # Beside its bytes, the message is held until its rows are read.
        if self._calls.reads(call, len(sent), 2 * len(sent)):
            parsing = loop.run_in_executor(None, parse, method.request, sent)
            parsing.add_done_callback(partial(self._start, method, context, call))
        return call, replied

    def _start(
        self,
        method: Predicting,
        context: Any,
        call: Call,
        parsing: "asyncio.Future[Any] | None" = None,
    ) -> None:
        """Start a call with its message, which is parsed here or was in a thread."""
        metadata = tuple(context.invocation_metadata())
        try:
            if parsing is None:
                message = parse(method.request, call.body)
            else:
                call.check_awaited()
                message = parsing.result()
            target = method.target_of(message)
            if method.filled_bytes is not None:
                # More are refused when they are read.
                most = self._predictor.max_body_bytes
                call.filled_bytes = min(method.filled_bytes(message), most)
        except Exception as error:
            call.head = self.head_of(method, metadata)
            self._calls.refuse(call, error)
            return
        call.message = message
        call.head = self.head_of(method, metadata, target)
        left_s = context.time_remaining()
        if left_s is not None:
            call.rim_timeout_s = left_s
        self._calls.start(call)


def headers_of(metadata: Metadata) -> dict[str, str]:
    """Return what of a call's metadata means what headers do."""
    return {
        name: value
        for name, value in metadata
        if name in _HEADERS and isinstance(value, str)
    }


@lru_cache(maxsize=1024)
def _peer(peer: str) -> Peer:
    """Return where a call comes from, by gRPC's name, such as ipv4:127.0.0.1:5000."""
    address = unquote(peer).partition(":")[2].rpartition(":")[0]
    return Peer(address.strip("[]"), 0, "grpc", 0)


async def send(context: Any, reply: Reply) -> bytes:
    """Return the message of a reply; a failed one ends the call.

    Raises:
        grpc.aio.AbortError: the reply is an error.
    """
    trailers = _trailers(reply)
    if reply.status >= 400:  # noqa: PLR2004
        await abort(context, reply.status, error_text(reply), trailers)
    context.set_trailing_metadata(trailers)
    return reply.body


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


def error_text(reply: Reply) -> str:
    """Return the text of an error's reply."""
    text: str = json_text.loads(reply.body)["error"]
    return text


def _trailers(reply: Reply) -> tuple[tuple[str, str], ...]:
    found = []
    for line in reply.lines.splitlines():
        header, _, value = line.partition(": ")
        name = header.lower()
        if name in _TRAILERS:
            found.append((name, value))
        if name == _RETRY_AFTER:
            found.append((_PUSHBACK, str(math.ceil(float(value) * 1000))))
    return tuple(found)
