"""Accepting connections up to the limit, on a real socket and a real event loop."""

import asyncio
import logging
import socket
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

from app.server.listeners import Listeners

_LIMIT = 200


class _Connection(asyncio.Protocol):
    """A connection that waits for its client."""

    def __init__(self, server: "_Server") -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._server.connections.add(self)
        self._server.listeners.opened(self)


class _Server:
    """The server of the connections; it notes when it is told to close some."""

    def __init__(self, listener: socket.socket) -> None:
        self.log = logging.getLogger(__name__)
        self.connections: set[Any] = set()
        self.closings = 0
        self.listeners: Any = Listeners([listener], self, _LIMIT, 64, None)

    def make_connection(self) -> Any:
        return _Connection(self)

    def close_waiting(self) -> None:
        self.closings += 1


async def _accept(listener: socket.socket) -> tuple[int, int]:
    """Accept what waits; return how many connections, and closings to make room."""
    server = _Server(listener)
    server.listeners.update()
    async with asyncio.timeout(20):
        while len(server.connections) < _LIMIT and not server.closings:
            await asyncio.sleep(0)
    found = len(server.connections), server.closings
    server.listeners.drain_backlog(0)
    for connection in server.connections:
        connection.transport.abort()
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
