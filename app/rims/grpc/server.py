"""The gRPC server of one worker, on its event loop.

gRPC asks for the method of a call first, and then receives the message for it: a call
without a key is refused before its message. The handlers of refusals take a stream of
messages, of which they read none.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from app.access.rights import Rights
from app.call import REQUEST_ID, Reply, new_id, valid_id
from app.error_replies import error_reply
from app.errors import GRPC_CODES, BasketError, SettingsError
from app.protocols import inference_service, prediction_service
from app.protocols.describe import Description
from app.protocols.methods import Method
from app.rims.grpc.calls import (
    PredictingCalls,
    abort,
    error_text,
    headers_of,
    send,
)
from app.rims.grpc.health import SERVICE as HEALTH
from app.rims.grpc.health import Health, described
from app.serving.loops import Loops
from app.serving.predictor import Predictor
from app.tls import TlsFiles

_log = logging.getLogger(__name__)

_STREAM = replace(
    inference_service.INFER, path=f"/{inference_service.SERVICE}/ModelStreamInfer"
)
_PREDICTING = {
    each.path: each
    for each in (prediction_service.PREDICT, inference_service.INFER, _STREAM)
}
_METHODS = {
    each.path: each
    for each in (*prediction_service.METHODS, *inference_service.METHODS)
}
# The paths of calls that need a key, if there are keys.
_WITH_KEY = frozenset(
    (*_PREDICTING, *(path for path, each in _METHODS.items() if not each.is_open))
)
# The methods that are not built, and why, by service.
_UNIMPLEMENTED = {
    prediction_service.PREDICTION_SERVICE: prediction_service.UNIMPLEMENTED,
    prediction_service.MODEL_SERVICE: prediction_service.UNIMPLEMENTED,
    inference_service.SERVICE: inference_service.UNIMPLEMENTED,
}
_ADDRESS = "grpc"
# Milliseconds after which a silent client is asked whether it is still there, and then
# has to answer.
_KEEPALIVE_MS = 60_000
_KEEPALIVE_TIMEOUT_MS = 20_000
# Milliseconds in which a new connection has to speak HTTP/2, and after which one
# without a call is closed: strangers may open connections.
_HANDSHAKE_TIMEOUT_MS = 10_000
_IDLE_MS = 75_000
# Seconds from the begin of a stop in which accepted calls reach their handlers.
_ON_ITS_WAY_S = 0.5


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves gRPC; all methods are called on the worker's event loop."""

    def __init__(
        self,
        address: str,
        loops: Loops,
        predictor: Predictor,
        describe: Description,
        rights: Rights,
    ) -> None:
        """Store the parts; `start` opens the port at the address."""
        self._address = address
        self._loops = loops
        self._predictor = predictor
        self._describe = describe
        self._rights = rights
        self._server: Any = None
        self._calls: PredictingCalls
        self._handlers: dict[str, Any] = {}
        self._health: Health
        # The number of calls that predict nothing and are not answered yet.
        self._asking = 0
        self._stopping: asyncio.Future[None] | None = None
        # Until then calls may be on their way to their handlers.
        self._idle_at = 0.0

    async def start(
        self,
        max_calls: int,
        tls: TlsFiles | None,
        count_request: Callable[[], None],
    ) -> None:
        """Open the port; beyond `max_calls` calls are refused, and connections closed.

        `count_request` is called for each request that predicts.

        Raises:
            SettingsError: the port can't be opened.
        """
        calls = self._loops.loop_calls()
        self._calls = PredictingCalls(self._predictor, calls, count_request)
        options = _options(max_calls, self._predictor.max_body_bytes)
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=max_calls)
        self._handlers = self._all_handlers()
        server.add_generic_rpc_handlers((self,))
        names = tuple(_UNIMPLEMENTED)
        self._health = Health(self._is_ready, names)
        add_HealthServicer_to_server(self._health, server)
        enable_server_reflection((*names, HEALTH, REFLECTION), server, described())
        try:
            if tls is None:
                server.add_insecure_port(self._address)
            else:
                server.add_secure_port(self._address, _credentials(tls))
        except (OSError, RuntimeError) as error:
            raise SettingsError(f"BASKET_GRPC_BIND={self._address}: {error}") from None
        await server.start()
        self._server = server
        _log.info("gRPC: listening at %s", self._address)

    def stop(self, timeout_s: float) -> None:
        """Refuse new calls, and finish those that are accepted, within some seconds."""
        if self._server is not None and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._server.stop(timeout_s))
            self._idle_at = time.monotonic() + _ON_ITS_WAY_S
            self._health.look_now()

    def is_busy(self) -> bool:
        """Return whether a call is not answered yet, after `stop`.

        Streams between two messages, and those of health, are not waited for.
        """
        if self._stopping is None or self._stopping.done():
            return False
        pending = self._calls.pending + self._asking
        return pending > 0 or time.monotonic() < self._idle_at

    async def close(self) -> None:
        """End all calls; may be called twice."""
        if self._server is not None:
            await self._server.stop(0)

    def _is_ready(self) -> bool:
        return self._stopping is None and self._describe.is_ready()

    def _all_handlers(self) -> dict[str, Any]:
        """Return gRPC's handlers by path, but for those of health and reflection."""
        unary, stream = (
            grpc.unary_unary_rpc_method_handler,
            grpc.stream_stream_rpc_method_handler,
        )
        handlers = {
            path: unary(self._calls.handler(method))
            for path, method in _PREDICTING.items()
        }
        handlers[_STREAM.path] = stream(self._stream)
        for path, method in _METHODS.items():
            handlers[path] = unary(partial(self._ask, method))
        for service, names in _UNIMPLEMENTED.items():
            for name, why in names.items():
                refuse = partial(_refuse_unimplemented, why)
                path = f"/{service}/{name}"
                handlers[path] = grpc.stream_unary_rpc_method_handler(refuse)
        return handlers

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call, or the one that refuses it; gRPC calls this."""
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None or path not in _WITH_KEY:
            return handler
        metadata = handler_call_details.invocation_metadata
        predicting = _PREDICTING.get(path)
        try:
            if predicting is not None:
                head = self._calls.head_of(predicting, tuple(metadata))
                now = time.monotonic()
                if now >= head.asks.allowed_until:
                    self._predictor.check_rights(head, _ADDRESS, now)
            else:
                self._rights.check(headers_of(metadata), _ADDRESS)
        except BasketError as error:
            refuse = partial(self._refuse, path, error)
            return grpc.stream_unary_rpc_method_handler(refuse)
        return handler

    async def _refuse(
        self, path: str, error: BasketError, messages: Any, context: Any
    ) -> bytes:
        """End a call; one that would predict is counted as over HTTP."""
        del messages
        if path in _METHODS:
            headers = headers_of(context.invocation_metadata())
            return await send(context, _named(error_reply(error), headers))
        reply = self._calls.refusal(_PREDICTING[path], error, context)
        return await send(context, reply)

    async def _ask(self, method: Method, sent: bytes, context: Any) -> bytes:
        """Answer a call that predicts nothing, in a thread."""
        headers = headers_of(context.invocation_metadata())

        def answer() -> Reply:
            try:
                if method.changes:
                    self._rights.check_admin(headers, _ADDRESS)
                reply = Reply(method.reply(self._describe, sent))
            except Exception as error:
                reply = error_reply(error)
            return _named(reply, headers)

        self._asking += 1
        threads = None if method.changes else self._loops.readers
        try:
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(threads, answer)
        finally:
            self._asking -= 1
        return await send(context, reply)

    async def _stream(
        self, messages: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Answer the messages of a stream one after the other."""
        async for sent in messages:
            reply = await self._calls.answer(_STREAM, sent, context)
            # Its key may have been removed meanwhile.
            if reply.status == 401:  # noqa: PLR2004
                await send(context, reply)
            if reply.status in GRPC_CODES:
                yield inference_service.stream_error(error_text(reply), sent)
            else:
                yield inference_service.stream_response(reply.body)
            if self._stopping is not None:
                await abort(context, 503, "the server is shutting down")


async def _refuse_unimplemented(why: str, messages: Any, context: Any) -> bytes:
    del messages
    await abort(context, 501, why)


def _named(reply: Reply, headers: dict[str, str]) -> Reply:
    """Return a reply with the request's id."""
    name = valid_id(headers.get(REQUEST_ID.lower())) or new_id()
    reply.lines += f"{REQUEST_ID}: {name}\r\n"
    return reply


def _options(max_connections: int, max_message_bytes: int) -> list[tuple[str, int]]:
    """Return the options of gRPC's core."""
    return [
        # Each worker opens the port, and the kernel spreads the connections.
        ("grpc.so_reuseport", 1),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ]


def _credentials(tls: TlsFiles) -> Any:
    def contents(path: str | None) -> bytes | None:
        if path is None:
            return None
        with open(path, "rb") as file:
            return file.read()

    pair = contents(tls.key), contents(tls.certificate)
    return grpc.ssl_server_credentials(
        [pair], contents(tls.authorities), tls.requires_client
    )
