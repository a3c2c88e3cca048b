"""Accepting connections up to the limit, on a real socket and a real event loop."""

import asyncio
import logging
import math
import socket
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from gunicorn.config import Config

from app.rims.http_server import HttpServer

_LIMIT = 200


class _Connection(asyncio.Protocol):
    """A connection that waits for its client, and notes when it is closed."""

    accepted_at = 0.0
    deadline = math.inf

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.closings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._server.opened(self)

    def waits_since(self) -> float:
        return 0.0

    def close(self) -> None:
        self.closings += 1

    def stop(self) -> None:
        self.transport.abort()


async def _accept(listener: socket.socket) -> tuple[int, int]:
    """Accept what waits; return how many connections, and closings to make room."""
    log: Any = logging.getLogger(__name__)
    config = Config()
    config.set("worker_connections", _LIMIT)
    config.set("backlog", 1)
    server = HttpServer([listener], config, log, _Connection, {})
    server.tick()
    async with asyncio.timeout(20):
        while len(server.connections) < _LIMIT:
            await asyncio.sleep(0)
    closings = sum(each.closings for each in server.connections)
    found = len(server.connections), closings
    server.stop()
    return found


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_burst_of_as_many_clients_as_the_limit_closes_no_connection(runner):
    """A connection counts once while it is opened, so that all of a burst fit."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.listen(_LIMIT)
        listener.setblocking(False)
        for _ in range(_LIMIT):
            client = socket.create_connection(listener.getsockname(), timeout=20)
            opened.enter_context(client)
        assert runner(_accept(listener)) == (_LIMIT, 0)
