"""The gRPC server of one worker, on its event loop."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import grpc
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from app.api.access.rights import Rights
from app.api.application import Application, Handler
from app.api.describe import Description
from app.api.event_loop import EventLoop
from app.api.exchange import HttpResponse
from app.api.inference.inference import Inference
from app.errors import GRPC_CODES, SettingsError
from app.grpc import inference_protocol, tensorflow_serving
from app.grpc.exchange import abort, error_text, send
from app.grpc.health import SERVICE as HEALTH
from app.grpc.health import Health, described
from app.grpc.methods import Methods, Unary
from app.grpc.predicting import Predicting
from app.grpc.routes import Asked, Route, call
from app.tls import TlsFiles

_log = logging.getLogger(__name__)

_PREDICT = f"{tensorflow_serving.PREDICTION_SERVICE}/Predict"
_INFER = f"{inference_protocol.SERVICE}/ModelInfer"
_STREAM = f"{inference_protocol.SERVICE}/ModelStreamInfer"
_UNIMPLEMENTED = {
    tensorflow_serving.PREDICTION_SERVICE: tensorflow_serving.UNIMPLEMENTED,
    tensorflow_serving.MODEL_SERVICE: tensorflow_serving.UNIMPLEMENTED,
    inference_protocol.SERVICE: inference_protocol.UNIMPLEMENTED,
}
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


class Asgi(Protocol):
    """The ASGI application, whose event loop and threads gRPC shares."""

    application: Application

    def event_loop(self) -> EventLoop:
        """Return the waits of the event loop that runs."""
        ...

    def in_thread(
        self, function: Callable[[], HttpResponse], *, reads_only: bool
    ) -> Awaitable[HttpResponse]:
        """Call a function in a thread."""
        ...


class GrpcServer:
    """Serves gRPC; all methods are called on the worker's event loop."""

    def __init__(
        self,
        address: str,
        max_message_bytes: int,
        asgi: Asgi,
        inference: Inference,
        describe: Description,
        rights: Rights,
    ) -> None:
        """Store the parts; `start` opens the port."""
        self._address = address
        self._max_message_bytes = max_message_bytes
        self._asgi = asgi
        self._describe = describe
        self._rights = rights
        self._predicting: Predicting | None = None
        self._handlers: dict[str, Handler] = {
            _PREDICT: partial(tensorflow_serving.predict, inference, max_message_bytes),
            _INFER: partial(inference_protocol.infer, inference),
        }
        self._server: Any = None
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
        asgi = self._asgi
        predicting = Predicting(asgi.application, asgi.event_loop(), count_request)
        options = _options(max_calls, self._max_message_bytes)
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=max_calls)
        server.add_generic_rpc_handlers((self._methods(predicting),))
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
        self._server, self._predicting = server, predicting
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
        if self._stopping is None or self._stopping.done() or self._predicting is None:
            return False
        pending = self._predicting.pending + self._asking
        return pending > 0 or time.monotonic() < self._idle_at

    async def close(self) -> None:
        """End all calls; may be called twice."""
        if self._server is not None:
            await self._server.stop(0)

    def _is_ready(self) -> bool:
        return self._stopping is None and self._describe.is_ready()

    def _methods(self, predicting: Predicting) -> Methods:
        """Return the methods of the services, but for health and reflection."""
        methods = Methods(self._rights, predicting)
        for method, handler in self._handlers.items():
            predict = _predicts(predicting, method, handler)
            methods.add_predicting(method, grpc.unary_unary_rpc_method_handler(predict))
        stream = partial(self._stream, predicting)
        methods.add_predicting(_STREAM, grpc.stream_stream_rpc_method_handler(stream))
        routes = tensorflow_serving.ROUTES | inference_protocol.ROUTES
        for method, route in routes.items():
            methods.add(method, partial(self._ask, route), is_open=route.is_open)
        for service, names in _UNIMPLEMENTED.items():
            for name, why in names.items():
                methods.add_unimplemented(f"{service}/{name}", why)
        return methods

    async def _ask(self, route: Route, sent: bytes, context: Any) -> bytes:
        """Answer a call that predicts nothing."""
        self._asking += 1
        asked = Asked(self._describe, self._rights, self._asgi.in_thread)
        try:
            return await call(route, asked, sent, context)
        finally:
            self._asking -= 1

    async def _stream(
        self, predicting: Predicting, messages: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Answer the messages of a stream one after the other."""
        path, handler = f"/{_STREAM}", self._handlers[_INFER]
        async for sent in messages:
            response = await predicting.answer(path, handler, sent, context)
            # Its key may have been removed meanwhile.
            if response.status == 401:  # noqa: PLR2004
                await send(context, response)
            if response.status in GRPC_CODES:
                yield inference_protocol.stream_error(error_text(response), sent)
            else:
                yield inference_protocol.stream_response(response.body)
            if self._stopping is not None:
                await abort(context, 503, "the server is shutting down")


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


def _predicts(predicting: Predicting, method: str, handler: Handler) -> Unary:
    """Return a function that answers calls of a method."""
    path = f"/{method}"

    # gRPC looks at the kind of a function at each call, and long at a partial.
    async def predict(sent: bytes, context: Any) -> bytes:
        return await send(
            context, await predicting.answer(path, handler, sent, context)
        )

    return predict


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
