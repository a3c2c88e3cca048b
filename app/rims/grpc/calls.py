"""gRPC's calls: a method is a path, metadata are headers.

Refused calls end with the code of their HTTP status, and headers of replies are
trailing metadata. gRPC asks for the method of a call first, and then receives the
message for it: a call without a key is refused before its message. The handlers of
refusals take a stream of messages, of which they read none.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import grpc

from app.access.rights import Rights
from app.call import REQUEST_ID, Call, Head, Peer, Reply, new_id
from app.codec import json_text
from app.codec.bounds import INLINE_BYTES
from app.error_replies import error_reply
from app.errors import GRPC_CODES, BasketError, Unsupported
from app.protocols import inference_service, prediction_service
from app.protocols.describe import Description
from app.protocols.grpc_messages import parse
from app.protocols.methods import Method
from app.repository.routing import Target
from app.serving.loop_calls import LoopCalls
from app.serving.loops import Loops
from app.serving.predictor import Predictor

# Metadata of a call that mean what the headers of these names do over HTTP.
_HEADERS = {
    "authorization",
    "x-client-id",
    "x-request-id",
    "x-request-timeout-ms",
    "traceparent",
    "tracestate",
}
# Headers of a reply that are trailing metadata of a call.
_TRAILERS = {
    "x-request-id",
    "x-model-version",
    "x-batch-size",
    "server-timing",
    "retry-after",
}
_PUSHBACK = "grpc-retry-pushback-ms"
# Clients refuse more metadata than 8 KiB; a character may take 3 bytes.
_LONGEST_TEXT = 2000
_REMEMBERED_HEADS = 1024
# Characters of a model's name and label, above which a head is not remembered.
_LONGEST_NAME = 256
_MODEL_UNKNOWN = Target()
_FAILED = 400
_ADDRESS = "grpc"
_NO_HEAD = Head("POST", "", "", {})

METHODS = {
    each.path: each
    for each in (*prediction_service.METHODS, *inference_service.METHODS)
}

Metadata = Iterable[tuple[str, str | bytes]]


class GrpcCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers calls of all methods; all of it is called on the event loop."""

    def __init__(
        self, loops: Loops, predictor: Predictor, describe: Description, rights: Rights
    ) -> None:
        """Store the parts; `start` comes before the first call."""
        self._loops = loops
        self._predictor = predictor
        self._describe = describe
        self._rights = rights
        self._calls: LoopCalls
        self._count_request: Callable[[], None]
        # The number of calls, and of a stream's messages, that are not answered yet.
        self.pending = 0
        self.is_stopping = False
        # Returns the head of a call by its method, metadata and target.
        self._head_of = lru_cache(_REMEMBERED_HEADS)(self._new_head)
        self._handlers = {path: self._handler(each) for path, each in METHODS.items()}

    def start(self, count_request: Callable[[], None]) -> None:
        """Take calls on the loop that runs; call `count_request` for each."""
        self._calls = self._loops.loop_calls()
        self._count_request = count_request

    def is_ready(self) -> bool:
        """Return whether the server is ready for calls."""
        return not self.is_stopping and self._describe.is_ready()

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call, or one that refuses it; gRPC calls this."""
        path = handler_call_details.method
        method = METHODS.get(path)
        if method is not None and not (method.is_open or method.unsupported):
            head = self._head_of(
                method, tuple(handler_call_details.invocation_metadata)
            )
            try:
                self._predictor.check_head(head, _ADDRESS, time.monotonic())
            except BasketError as error:
                return self._refuses(method, error)
        return self._handlers.get(path)

    def _handler(self, method: Method) -> Any:
        if method.unsupported:
            return self._refuses(method, Unsupported(method.unsupported))
        if method is inference_service.STREAM:
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if method.protocol is None:
            return grpc.unary_unary_rpc_method_handler(partial(self._describes, method))

        # gRPC looks at the kind of a function at each call, and long at a partial.
        async def predict(sent: bytes, context: Any) -> bytes:
            return await send(context, await self._predict(method, sent, context))

        return grpc.unary_unary_rpc_method_handler(predict)

    def _refuses(self, method: Method, error: BasketError) -> Any:
        """Return a handler that ends calls before their message.

        Listeners are told of one that would predict.
        """

        async def refuse(messages: Any, context: Any) -> bytes:
            del messages
            replies: list[Reply] = []
            call = Call(
                self._head_of(method, tuple(context.invocation_metadata())),
                b"",
                peer_of(context.peer()),
                lambda _, reply: replies.append(reply),
            )
            self._count_request()
            self._calls.refuse(call, error)
            return await send(context, replies[0])

        return grpc.stream_unary_rpc_method_handler(refuse)

    async def _describes(self, method: Method, sent: bytes, context: Any) -> bytes:
        """Answer a call that predicts nothing, in a thread."""
        head = self._head_of(method, tuple(context.invocation_metadata()))

        def answer() -> Reply:
            try:
                if method.changes:
                    self._rights.check_admin(head.headers, _ADDRESS)
                return Reply(method.reply(self._describe, sent))
            except Exception as error:
                return error_reply(error)

        self.pending += 1
        threads = None if method.changes else self._loops.readers
        try:
            reply = await asyncio.get_running_loop().run_in_executor(threads, answer)
        finally:
            self.pending -= 1
        reply.lines += f"{REQUEST_ID}: {head.request_id or new_id()}\r\n"
        return await send(context, reply)

    async def _stream(
        self, messages: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Answer the messages of a stream one after the other."""
        async for sent in messages:
            reply = await self._predict(inference_service.STREAM, sent, context)
            # Its key may have been removed meanwhile.
            if reply.status == 401:  # noqa: PLR2004
                await send(context, reply)
            error = error_text(reply) if reply.status >= _FAILED else ""
            yield inference_service.stream_message(reply, error, sent)
            if self.is_stopping:
                text = "the server is shutting down"
                await context.abort(grpc.StatusCode.UNAVAILABLE, text)

    async def _predict(self, method: Method, sent: bytes, context: Any) -> Reply:
        """Return the reply to a message.

        Raises:
            asyncio.CancelledError: the client canceled the call.
        """
        self.pending += 1
        self._count_request()
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[Reply] = loop.create_future()

        def reply_to(call: Call, reply: Reply) -> None:
            if not replied.done():
                replied.set_result(reply)

        # The message names the model, so that the call's own head comes later.
        call = Call(_NO_HEAD, sent, peer_of(context.peer()), reply_to)
        left_s = context.time_remaining()
        if left_s is not None:
            call.rim_timeout_s = left_s
        if len(sent) <= INLINE_BYTES:
            self._start(method, context, call)
        else:
            call.head = self._head_of(method, tuple(context.invocation_metadata()))
            # Beside its bytes, the message is held until its rows are read.
            if self._calls.holds(call, 2 * len(sent)):
                parsing = loop.run_in_executor(None, parse, method.request, sent)
                parsing.add_done_callback(partial(self._start, method, context, call))
        try:
            return await replied
        finally:
            self.pending -= 1
            if replied.cancelled():
                self._calls.left(call)

    def _start(
        self,
        method: Method,
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
            call.head = self._head_of(method, metadata)
            self._calls.refuse(call, error)
            return
        call.message = message
        size = len(target.name or "") + len(target.label or "")
        # A message may have a name of any size, which must not be kept.
        head_of = self._head_of if size <= _LONGEST_NAME else self._new_head
        call.head = head_of(method, metadata, target)
        self._calls.start(call)

    def _new_head(
        self, method: Method, metadata: Metadata, target: Target = _MODEL_UNKNOWN
    ) -> Head:
        head = Head("POST", method.path, "", headers_of(metadata))
        self._predictor.direct(head, method.protocol, target)
        return head


def headers_of(metadata: Metadata) -> dict[str, str]:
    """Return what of a call's metadata means what headers do."""
    return {
        name: value
        for name, value in metadata
        if name in _HEADERS and isinstance(value, str)
    }


@lru_cache(maxsize=1024)
def peer_of(peer: str) -> Peer:
    """Return where a call comes from, by gRPC's name, such as ipv4:127.0.0.1:5000."""
    address = unquote(peer).partition(":")[2].rpartition(":")[0]
    return Peer(address.strip("[]"), 0, "grpc", 0)


async def send(context: Any, reply: Reply) -> bytes:
    """Return the message of a reply; a failed one ends the call.

    Raises:
        grpc.aio.AbortError: the reply is an error.
    """
    found = []
    for line in reply.lines.splitlines():
        header, _, value = line.partition(": ")
        name = header.lower()
        if name in _TRAILERS:
            found.append((name, value))
        if name == "retry-after":
            found.append((_PUSHBACK, str(math.ceil(float(value) * 1000))))
    trailers = tuple(found)
    if reply.status >= _FAILED:
        code = grpc.StatusCode[GRPC_CODES.get(reply.status, "UNKNOWN")]
        await context.abort(code, error_text(reply)[:_LONGEST_TEXT], trailers)
    context.set_trailing_metadata(trailers)
    return reply.body


def error_text(reply: Reply) -> str:
    """Return the text of an error's reply."""
    return str(json_text.loads(reply.body)["error"])
