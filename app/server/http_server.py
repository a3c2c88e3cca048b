"""An ASGI application on listening sockets: what a worker's connections share."""

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
from app.server.listeners import Listeners
from app.server.peer import TrustedProxies
from app.server.request import Request

AsgiApplication = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]

# Seconds that an idle connection is kept while the server stops: its client may be
# sending, and is told to close with the response.
_IDLE_WHILE_STOPPING_S = 1.0


@dataclass(frozen=True)
class Options:
    """What an operator chooses, by Gunicorn's names for it where it has one.

    `keepalive_s` is 0 where no connection is kept.
    """

    limits: Limits
    keepalive_s: float
    max_connections: int
    max_idle_connections: int
    backlog: int
    proxies: TrustedProxies
    tls: ssl.SSLContext | None


class HttpServer:
    """Serves an ASGI application; everything is called on the event loop."""

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
        # asyncio itself keeps no task alive.
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._listeners = Listeners(
            sockets,
            lambda: Connection(self),
            lambda: len(self.connections),
            options.max_connections,
            options.tls,
            log,
        )
        # Of the last tick, on the monotonic clock.
        self.now = time.monotonic()
        # What stands in each response.
        self.common_headers = b""
        self._loop = asyncio.get_running_loop()

    def tick(self) -> None:
        """Accept connections, and look at the clock; call it several times a second."""
        self.now = time.monotonic()
        date = formatdate(usegmt=True)
        self.common_headers = f"Server: gunicorn\r\nDate: {date}\r\n".encode()
        for connection in [c for c in self.connections if c.deadline <= self.now]:
            connection.expire()
        self._listeners.update()

    def stop(self) -> None:
        """Accept what waits in the kernel, then no more; finish what is under way."""
        self._stopping = True
        self.now = time.monotonic()
        self._listeners.drain_backlog(self._options.backlog)
        for connection in self.connections:
            connection.stop()

    def is_busy(self) -> bool:
        """Return whether there is any connection."""
        return bool(self.connections or self._listeners.opening())

    # What connections ask.

    def by(self, timeout_s: float) -> float:
        """Return when a client's time is over, on the monotonic clock.

        While the server stops it is soon, also for a head that has only begun.
        """
        if self._stopping:
            timeout_s = min(timeout_s, _IDLE_WHILE_STOPPING_S)
        return self.now + timeout_s

    def start(
        self, request: Request, done: Callable[["asyncio.Task[None]"], None]
    ) -> None:
        """Have the application answer a request; `done` is called at the end."""
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

        All connections count: those that are busy now will be idle.
        """
        if self._stopping or not self._options.keepalive_s:
            return False
        return len(self.connections) <= self._options.max_idle_connections

    def lost(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.connections.discard(connection)
        self._listeners.update()
