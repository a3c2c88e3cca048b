"""The gRPC server of one worker, on its event loop."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from app.errors import SettingsError
from app.rims.grpc.calls import METHODS, GrpcCalls
from app.rims.grpc.health import SERVICE as HEALTH
from app.rims.grpc.health import GrpcHealth, described
from app.tls import TlsFiles

_log = logging.getLogger(__name__)

_SERVICES = tuple(dict.fromkeys(method.service for method in METHODS.values()))
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


class GrpcServer:
    """Serves gRPC; all methods are called on the worker's event loop."""

    def __init__(self, address: str, calls: GrpcCalls, max_body_bytes: int) -> None:
        """Store the parts; `start` opens the port at the address."""
        self._address = address
        self._calls = calls
        self._max_body_bytes = max_body_bytes
        self._server: Any = None
        self._health = GrpcHealth(calls.is_ready, _SERVICES)
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

        `count_request` is called for each request that predicts or is refused.

        Raises:
            SettingsError: the port can't be opened.
        """
        self._calls.start(count_request)
        server = grpc.aio.server(
            options=_options(max_calls, self._max_body_bytes),
            maximum_concurrent_rpcs=max_calls,
        )
        server.add_generic_rpc_handlers((self._calls,))
        add_HealthServicer_to_server(self._health, server)
        enable_server_reflection((*_SERVICES, HEALTH, REFLECTION), server, described())
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
            self._calls.is_stopping = True
            self._idle_at = time.monotonic() + _ON_ITS_WAY_S
            self._health.look_now()

    def is_busy(self) -> bool:
        """Return whether a call is not answered yet, after `stop`.

        Streams between two messages, and those of health, are not waited for.
        """
        if self._stopping is None or self._stopping.done():
            return False
        return self._calls.pending > 0 or time.monotonic() < self._idle_at

    async def close(self) -> None:
        """End all calls; may be called twice."""
        if self._server is not None:
            await self._server.stop(0)


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
    pair = Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes()
    authorities = tls.authorities and Path(tls.authorities).read_bytes()
    return grpc.ssl_server_credentials([pair], authorities, tls.requires_client)
