"""An HTTP server for an ASGI application: the state that connections share."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from socket import socket
from typing import Any

from app.server.connection import HEADER_TIMEOUT_S, Connection
from app.server.head import Limits
from app.server.heads import Heads
from app.server.listeners import CLOSED_SHARE, WAIT_AT_LIMIT_S, Listeners
from app.server.peer import TrustedProxies
from app.server.request import Request

AsgiApplication = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]

# Seconds for an idle connection during graceful shutdown. Its client may be sending a
# request; the response then says close.
_IDLE_WHILE_STOPPING_S = 1.0


@dataclass(frozen=True)
class Options:
    """Settings, named after Gunicorn's.

    `keepalive_s` is 0 without keep-alive.
    """

    limits: Limits
    keepalive_s: float
    max_connections: int
    max_idle_connections: int
    accept_batch: int
    backlog: int
    proxies: TrustedProxies
    tls: ssl.SSLContext | None


class HttpServer:
    """Serves an ASGI application; all methods are called on the event loop."""

    def __init__(
        self,
        app: AsgiApplication,
        sockets: Sequence[socket],
        options: Options,
        log: Any,
        log_access: Callable[[Request], None],
        count_request: Callable[[], None],
    ) -> None:
        """Store the parts, and the running loop.

        `count_request` is called for each request that begins.
        """
        self._app = app
        self._options = options
        self.log = log
        self.log_access = log_access
        self._count_request = count_request
        self.heads = Heads(options.limits)
        self.proxies = options.proxies
        self.keepalive_s = options.keepalive_s or HEADER_TIMEOUT_S
        self.connections: set[Connection] = set()
        # asyncio keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        limits = options.max_connections, options.accept_batch
        self._listeners = Listeners(sockets, self, *limits, options.tls)
        # Time of the last tick, on the monotonic clock.
        self.now = time.monotonic()
        # Headers of every response.
        self.common_headers = b""
        self._loop = asyncio.get_running_loop()

    def tick(self) -> None:
        """Check deadlines, and accept connections; call this several times a second."""
        self.now = time.monotonic()
        date = formatdate(usegmt=True)
        self.common_headers = f"Server: gunicorn\r\nDate: {date}\r\n".encode()
        for connection in [c for c in self.connections if c.deadline <= self.now]:
            connection.expire()
        self._listeners.update()

    def stop(self) -> None:
        """Begin a graceful shutdown: drain the backlog, then accept no more."""
        self._stopping = True
        self.now = time.monotonic()
        self._listeners.drain_backlog(self._options.backlog)
        for connection in self.connections:
            connection.stop()

    def make_connection(self) -> Connection:
        """Return a new connection."""
        return Connection(self)

    def close_waiting(self) -> None:
        """Close a part of the connections that wait for their client, the longest.

        Others have waited for a moment only: a request may be on its way.
        """
        limit = time.monotonic() - WAIT_AT_LIMIT_S
        waiting = [each for each in self.connections if each.waits_since() < limit]
        waiting.sort(key=Connection.waits_since)
        for connection in waiting[: len(self.connections) // CLOSED_SHARE + 1]:
            connection.close()

    def is_busy(self) -> bool:
        """Return whether there is a connection."""
        return bool(self.connections or self._listeners.opening())

    # What connections ask.

    def by(self, timeout_s: float) -> float:
        """Return a deadline for the client, on the monotonic clock.

        During graceful shutdown it is at most a second away.
        """
        if self._stopping:
            timeout_s = min(timeout_s, _IDLE_WHILE_STOPPING_S)
        return self.now + timeout_s

    def start(
        self, request: Request, done: Callable[["asyncio.Task[None]"], None]
    ) -> None:
        """Run the application for a request; `done` is called at the end."""
        self._count_request()
        answering = self._app(request.scope(), request.receive, request.send)
        task = self._loop.create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(done)

    def future(self) -> "asyncio.Future[Any]":
        """Return a new future of the event loop."""
        return self._loop.create_future()

    def keeps_connections(self) -> bool:
        """Return whether one more connection may become idle.

        All connections count, as the busy ones will be idle.
        """
        if self._stopping or not self._options.keepalive_s:
            return False
        return len(self.connections) <= self._options.max_idle_connections

    def opened(self, connection: Connection) -> None:
        """Add a connection that has its transport."""
        self.connections.add(connection)
        self._listeners.opened(connection)

    def lost(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self._listeners.update()
