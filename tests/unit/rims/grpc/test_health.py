"""gRPC's health service, without gRPC."""

import asyncio

from grpc_health.v1 import health_pb2

from app.rims.grpc.health import GrpcHealth
from tests.support.asgi import on_loop

_STATES = health_pb2.HealthCheckResponse


@on_loop
async def test_change_while_an_answer_is_sent_is_told_at_once():
    """Watch misses no change that comes before its last answer has left."""
    ready = True
    health = GrpcHealth(lambda: ready, [])
    watched = health.Watch(health_pb2.HealthCheckRequest(), None)
    # Watch stands where gRPC sends the answer.
    assert (await anext(watched)).status == _STATES.SERVING
    ready = False
    health.look_now()
    # Long before the next look of its own.
    async with asyncio.timeout(0.5):
        assert (await anext(watched)).status == _STATES.NOT_SERVING
