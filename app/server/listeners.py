"""Listening sockets: connection limit, EMFILE back-off, draining the backlog.

asyncio's own server has no limit, and its close resets the connections in the kernel's
backlog. So here each listening socket is a reader of the event loop.
"""

import asyncio
import errno
import math
import socket
import ssl
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from app.server.connection import Connection

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Back-off: seconds until the next try if no connection closes. Other processes may free
# file descriptors, and busy connections become idle.
_RETRY_AFTER_S = 1.0
# Seconds between log lines about it.
_LOG_EVERY_S = 60.0
# At the limit, one in so many connections is closed to make room for new clients. One
# at a time would take a search for each client.
CLOSED_SHARE = 16
# At the limit: seconds that a client may keep a connection waiting, and seconds until
# the next look.
WAIT_AT_LIMIT_S = 1.0
_LOOK_AGAIN_AFTER_S = 0.1
# Seconds for a whole TLS handshake.
TLS_HANDSHAKE_TIMEOUT_S = 10.0
# Seconds for a client to close its side of a TLS connection.
_TLS_SHUTDOWN_TIMEOUT_S = 2.0


class Server(Protocol):
    """The server that accepted connections belong to."""

    log: Any
    connections: set[Connection]

    def make_connection(self) -> Connection:
        """Return the protocol of a new connection."""
        ...

    def close_waiting(self) -> None:
        """Close a part of the connections that wait for their client."""
        ...


class _Opening(NamedTuple):
    """The task that opens a connection, and since when, on the monotonic clock."""

    task: "asyncio.Task[None]"
    since: float


class Listeners:
    """The listening sockets of a worker.

    `max_connections` includes connections in their TLS handshake. `accept_batch` is the
    number of connections to accept in one round of a busy event loop: clients of a lone
    worker should not wait a round each, and those of several workers should spread.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        server: Server,
        max_connections: int,
        accept_batch: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Store the parts and the running event loop; `update` starts accepting."""
        self._sockets = list(sockets)
        self._server = server
        self._max_connections = max_connections
        self._accept_batch = accept_batch
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        # Connections without a transport yet, or in their TLS handshake, the oldest
        # first.
        self._opening: dict[Connection, _Opening] = {}
        # Back-off: the number of connections below which it ends, and when it ends in
        # any case. Then the time of the next log line.
        self._full_at = math.inf
        self._retry_at = self._log_at = -math.inf

    def opening(self) -> int:
        """Return the number of connections that are being opened."""
        return len(self._opening)

    def opened(self, connection: Connection) -> None:
        """Count a connection as one of the server's from now on."""
        self._opening.pop(connection, None)

    def update(self) -> None:
        """Start or stop accepting."""
        can_open = self._count() < self._full_at or time.monotonic() >= self._retry_at
        wanted = bool(self._sockets) and can_open
        if wanted == self._accepting:
            return
        self._accepting = wanted
        for listener in self._sockets:
            if wanted:
                self._loop.add_reader(listener.fileno(), self._accept_some, listener)
            else:
                self._loop.remove_reader(listener.fileno())

    def drain_backlog(self, limit: int) -> None:
        """Accept up to `limit` connections of each backlog, then close the sockets.

        On an open socket clients would connect to a worker that never answers.
        """
        for listener in self._sockets:
            if self._accepting:
                self._loop.remove_reader(listener.fileno())
            for _ in range(limit):
                if not self._accept(listener):
                    break
            listener.close()
        self._sockets.clear()
        self._accepting = False

    def _count(self) -> int:
        return len(self._server.connections) + len(self._opening)

    def _back_off(self, longest_s: float) -> None:
        """Stop accepting until a connection closes, or for some seconds."""
        self._full_at = self._count()
        self._retry_at = time.monotonic() + longest_s

    def _accept_some(self, listener: socket.socket) -> None:
        """Accept up to `accept_batch` connections.

        At the limit, those that wait for their client make room for new ones.
        """
        free = self._max_connections - self._count()
        # What made the last back-off necessary may be over.
        self._full_at = math.inf
        if free <= 0:
            self._back_off(_LOOK_AGAIN_AFTER_S)
            # After what the next round of the loop reads: requests may have come since
            # this one looked.
            self._loop.call_soon(self._loop.call_soon, self._make_room)
        for _ in range(min(free, self._accept_batch)):
            if not self._accept(listener):
                break
        self.update()

    def _make_room(self) -> None:
        """Close a part of the waiting connections, and end as many handshakes.

        The oldest of both.
        """
        self._server.close_waiting()
        limit = time.monotonic() - WAIT_AT_LIMIT_S
        oldest = [*self._opening.values()][: len(self._opening) // CLOSED_SHARE + 1]
        for opening in oldest:
            if opening.since < limit:
                opening.task.cancel()

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection; return whether there was one."""
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            return True
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._note_exhausted(error)
            return False
        sock.setblocking(False)
        connection = self._server.make_connection()
        task = self._loop.create_task(self._open(sock, connection))
        self._opening[connection] = _Opening(task, time.monotonic())
        task.add_done_callback(partial(self._ended, connection))
        return True

    async def _open(self, sock: socket.socket, connection: Connection) -> None:
        limits = {
            "ssl_handshake_timeout": TLS_HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": _TLS_SHUTDOWN_TIMEOUT_S,
        }
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._tls,
                **(limits if self._tls else {}),
            )
        except OSError as error:  # TLS errors and time-outs among them
            self._server.log.debug("connection closed while it was opened: %s", error)
            sock.close()

    def _ended(self, connection: Connection, _: "asyncio.Task[None]") -> None:
        self._opening.pop(connection, None)
        self.update()

    def _note_exhausted(self, error: OSError) -> None:
        self._back_off(_RETRY_AFTER_S)
        now = time.monotonic()
        if now >= self._log_at:
            text = "no room for more than %d connections: %s"
            self._server.log.error(text, self._full_at, error)
            self._log_at = now + _LOG_EVERY_S
