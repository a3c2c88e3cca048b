"""The HTTP server of a worker: what its connections share, and its listening sockets.

asyncio's own server has no limit on connections, and its close resets the connections
in the kernel's backlog. So here each listening socket is a reader of the event loop.
"""

import asyncio
import errno
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from app import tls
from app.rims.http_heads import HeadCache
from app.rims.peers import trusted_networks

if TYPE_CHECKING:
    from app.rims.http1 import Connection

# Seconds for an idle connection during graceful shutdown. Its client may be sending a
# request; the response then says close.
_IDLE_WHILE_STOPPING_S = 1.0
# Connections that a lone worker accepts in one round of its event loop: its clients
# should not wait a round each. Those of several workers should spread.
_ACCEPT_BATCH = 64
# Back-off: seconds until the next try if no connection closes. Other processes may free
# file descriptors, and busy connections become idle.
_RETRY_AFTER_S = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Seconds between log lines about it.
_LOG_EVERY_S = 60.0
# At the limit, one in so many connections is closed to make room for new clients. One
# at a time would take a search for each client.
_CLOSED_SHARE = 16
# At the limit: seconds that a client may keep a connection waiting.
_WAIT_AT_LIMIT_S = 1.0
# At the limit: seconds until the next look.
_LOOK_AGAIN_AFTER_S = 0.1
# Seconds for a client to close its side of a TLS connection.
_TLS_SHUTDOWN_TIMEOUT_S = 2.0


class HttpServer:
    """Accepts connections, and keeps what they share; all is called on the event loop.

    `cfg` and `log` are Gunicorn's; `connect` makes the protocol of a new connection.
    `timeouts` are other values, by their names, of those that no setting has.
    """

    # Seconds for a whole head, and for the rest of a body that nobody reads.
    header_s = 30.0
    # Seconds without a byte of a response being read.
    send_s = 30.0
    # Seconds for a whole TLS handshake.
    tls_handshake_s = 10.0

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        cfg: Any,
        log: Any,
        connect: Callable[["HttpServer"], Any],
        timeouts: Mapping[str, float],
    ) -> None:
        """Store the parts and the running loop; the first `tick` starts accepting."""
        self._sockets = list(sockets)
        self._cfg = cfg
        self.log = log
        self._connect = connect
        self.__dict__.update(timeouts)
        self.loop = asyncio.get_running_loop()
        self._tls = tls.context_of(cfg)
        # A logger without this attribute may be one that counts.
        has_log = getattr(log, "access_log_enabled", True)
        self.logs_calls = bool(has_log or cfg.statsd_host)
        self.trusted = trusted_networks(cfg.forwarded_allow_ips)
        self.heads = HeadCache(cfg)
        self.keepalive_s: float = cfg.keepalive or self.header_s
        # Requests until `on_last_request` is called, once.
        self.requests_left: float = math.inf
        self.on_last_request: Callable[[], object] = int
        self._is_stopping = False
        self.connections: set[Connection] = set()
        # Whether one more connection may become idle. All count, as the busy ones will
        # be idle.
        self.keeps_alive = True
        spare = cfg.worker_connections - cfg.threads
        self._max_idle_connections = max(spare, 0) if cfg.keepalive else -1
        self._accept_batch = _ACCEPT_BATCH if cfg.workers == 1 else 1
        # Tasks of connections without a transport yet, or in their TLS handshake, the
        # oldest first.
        self._opening: dict[Connection, asyncio.Task[None]] = {}
        self._is_accepting = False
        # When a back-off ends, if no connection closes. Then the time of the next log
        # line about it.
        self._retry_at = -math.inf
        self._log_at = -math.inf
        self._renew()

    def tick(self) -> None:
        """Check deadlines, and accept connections; call this several times a second."""
        self._renew()
        for connection in [*self.connections]:
            if connection.deadline <= self.now:
                connection.expire()
        self._update()

    def stop(self) -> None:
        """Begin a graceful shutdown: drain the backlog, then accept no more.

        On an open socket clients would connect to a worker that never answers.
        """
        self._is_stopping = True
        self._max_idle_connections = -1
        self._renew()
        for listener in self._sockets:
            self.loop.remove_reader(listener.fileno())
            for _ in range(self._cfg.backlog):
                if not self._accept(listener):
                    break
            listener.close()
        self._sockets.clear()
        self._is_accepting = False
        self._update()
        for connection in self.connections:
            connection.stop()

    def is_busy(self) -> bool:
        """Return whether there is a connection."""
        return bool(self._count())

    # Called by connections.

    def opened(self, connection: "Connection") -> None:
        """Add a connection that has its transport."""
        self._opening.pop(connection, None)
        self.connections.add(connection)
        self._update()

    def lost(self, connection: "Connection") -> None:
        """Remove a closed connection."""
        self.connections.discard(connection)
        self._retry_at = -math.inf
        self._update()

    def deadline_in(self, timeout_s: float) -> float:
        """Return a deadline for a client; during graceful shutdown it is soon."""
        if self._is_stopping:
            timeout_s = min(timeout_s, _IDLE_WHILE_STOPPING_S)
        return self.now + timeout_s

    def count_request(self) -> None:
        """Count a request that has its reply."""
        self.requests_left -= 1
        if not self.requests_left:
            self.on_last_request()

    # Time and limits.

    def _renew(self) -> None:
        """Read the clock, and make the bytes that all responses share."""
        self.now = time.monotonic()
        # Of a connection that becomes idle.
        self.idle_until = self.deadline_in(self.keepalive_s)
        lines = f"Server: gunicorn\r\nDate: {formatdate(usegmt=True)}\r\nConnection: "
        self.head_end = f"{lines}keep-alive\r\n\r\n".encode()
        self.closing_head_end = f"{lines}close\r\n\r\n".encode()

    def _count(self) -> int:
        return len(self.connections) + len(self._opening)

    def _update(self) -> None:
        """Start or stop accepting, and keeping connections."""
        self.keeps_alive = len(self.connections) <= self._max_idle_connections
        is_wanted = bool(self._sockets) and time.monotonic() >= self._retry_at
        if is_wanted == self._is_accepting:
            return
        self._is_accepting = is_wanted
        for listener in self._sockets:
            if is_wanted:
                self.loop.add_reader(listener.fileno(), self._accept_some, listener)
            else:
                self.loop.remove_reader(listener.fileno())

    # Accepting.

    def _accept_some(self, listener: socket.socket) -> None:
        """Accept connections; at the limit, those that wait for their client go."""
        free = self._cfg.worker_connections - self._count()
        if free <= 0:
            self._retry_at = time.monotonic() + _LOOK_AGAIN_AFTER_S
            # After what the next round of the loop reads: requests may have come since
            # this one looked.
            self.loop.call_soon(self.loop.call_soon, self._make_room)
        for _ in range(min(free, self._accept_batch)):
            if not self._accept(listener):
                break
        self._update()

    def _make_room(self) -> None:
        """Close a part of the waiting connections, and end as many handshakes.

        The oldest of both. Others have waited for a moment only: a request may be on
        its way.
        """
        limit = time.monotonic() - _WAIT_AT_LIMIT_S
        waiting = sorted(self.connections, key=lambda each: each.waits_since())
        for connection in waiting[: len(waiting) // _CLOSED_SHARE + 1]:
            if connection.waits_since() < limit:
                connection.close()
        oldest = [*self._opening.items()]
        for connection, task in oldest[: len(oldest) // _CLOSED_SHARE + 1]:
            if connection.accepted_at < limit:
                task.cancel()

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
            now = time.monotonic()
            self._retry_at = now + _RETRY_AFTER_S
            if now >= self._log_at:
                text = "no room for more than %d connections: %s"
                self.log.error(text, self._count(), error)
                self._log_at = now + _LOG_EVERY_S
            return False
        sock.setblocking(False)
        connection = self._connect(self)
        opening = self._open(sock, connection)
        self._opening[connection] = self.loop.create_task(opening)
        return True

    async def _open(self, sock: socket.socket, connection: Any) -> None:
        limits = {}
        if self._tls is not None:
            limits["ssl_handshake_timeout"] = self.tls_handshake_s
            limits["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_TIMEOUT_S
        try:
            await self.loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._tls,
                **limits,
            )
        except OSError as error:  # TLS errors and time-outs among them
            self.log.debug("connection closed while it was opened: %s", error)
            sock.close()
        finally:
            if self._opening.pop(connection, None) is not None:
                self.lost(connection)
