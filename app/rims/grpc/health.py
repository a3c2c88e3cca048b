"""gRPC's health service, which is not ready where /readyz is not.

https://grpc.io/docs/guides/health-checking/
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from app.protocols.grpc_messages import pool

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
_FILES = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
# Seconds between looks for those who watch.
_LOOK_EVERY_S = 1.0


def described() -> Any:
    """Return the pool of all services, those of packages among them."""
    for file in _FILES:
        pool().AddSerializedFile(file.serialized_pb)
    return pool()


class GrpcHealth(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Reports one state for the server and all its services."""

    def __init__(self, is_ready: Callable[[], bool], services: Collection[str]) -> None:
        """Store the check of readiness, and the services' names."""
        self._is_ready = is_ready
        self._services = ("", *services)
        # Set, and replaced, when those who watch have to look at once.
        self._look = asyncio.Event()

    def look_now(self) -> None:
        """Tell those who watch that the state may have changed."""
        self._look.set()
        self._look = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> Any:
        """Return the state of a service, or of the server: "".

        Raises:
            grpc.aio.AbortError: there is no such service.
        """
        state = self._state(request.service)
        if state == _SERVICE_UNKNOWN:
            text = f"there is no service {request.service[:80]!r}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        return health_pb2.HealthCheckResponse(status=state)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the state of a service whenever it has changed."""
        del context
        last = None
        while True:
            # Taken before the look, and before the answer is sent: a change that comes
            # meanwhile isn't missed.
            look = self._look
            state = self._state(request.service)
            if state != last:
                last = state
                yield health_pb2.HealthCheckResponse(status=state)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await look.wait()

    def _state(self, service: str) -> Any:
        if service not in self._services:
            return _SERVICE_UNKNOWN
        return _SERVING if self._is_ready() else _NOT_SERVING
