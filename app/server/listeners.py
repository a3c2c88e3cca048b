"""Listening sockets: a connection limit, EMFILE back-off, and draining the backlog.

asyncio's own server has no limit, and its close resets the connections in the kernel's
backlog. So here each listening socket is a reader of the event loop.
"""

import asyncio
import errno
import math
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# EMFILE back-off: seconds until the next try if no connection closes. Other processes
# may free file descriptors, too.
_RETRY_AFTER_S = 1.0
# Seconds between log lines about it.
_LOG_EVERY_S = 60.0
# Seconds for a whole TLS handshake.
TLS_HANDSHAKE_TIMEOUT_S = 10.0
# Seconds for a client to close its side of a TLS connection.
_TLS_SHUTDOWN_TIMEOUT_S = 2.0


class Listeners:
    """The listening sockets of a worker.

    `open_connections` returns the number of connections; `max_connections` is their
    limit, handshakes included.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make_protocol: Callable[[], asyncio.Protocol],
        open_connections: Callable[[], int],
        max_connections: int,
        tls: ssl.SSLContext | None,
        log: Any,
    ) -> None:
        """Store the parts and the running event loop; `update` starts accepting."""
        self._sockets = list(sockets)
        self._make_protocol = make_protocol
        self._open_connections = open_connections
        self._max_connections = max_connections
        self._tls = tls
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        # Connections without a transport yet, or in their TLS handshake.
        self._opening: set[asyncio.Task[Any]] = set()
        # Number of connections when descriptors ran out, the end of the back-off, and
        # the time of the next log line.
        self._exhausted_at = math.inf
        self._retry_at = self._log_at = -math.inf

    def opening(self) -> int:
        """Return the number of connections that are being opened."""
        return len(self._opening)

    def update(self) -> None:
        """Start or stop accepting, by the number of connections."""
        count = self._count()
        can_open = count < self._exhausted_at or time.monotonic() >= self._retry_at
        wanted = bool(self._sockets) and count < self._max_connections and can_open
        if wanted == self._accepting:
            return
        self._accepting = wanted
        for listener in self._sockets:
            if wanted:
                self._loop.add_reader(listener.fileno(), self._accept_one, listener)
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
        return self._open_connections() + len(self._opening)

    def _accept_one(self, listener: socket.socket) -> None:
        """Accept one connection, and leave the others to other workers."""
        self._accept(listener)
        self.update()

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
        opening = self._loop.create_task(self._open(sock))
        self._opening.add(opening)
        opening.add_done_callback(self._opened)
        return True

    async def _open(self, sock: socket.socket) -> None:
        limits = {
            "ssl_handshake_timeout": TLS_HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": _TLS_SHUTDOWN_TIMEOUT_S,
        }
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                sock,
                ssl=self._tls,
                **(limits if self._tls else {}),
            )
        except OSError as error:  # TLS errors and time-outs among them
            self._log.debug("connection closed while it was opened: %s", error)
            sock.close()

    def _opened(self, opening: "asyncio.Task[Any]") -> None:
        self._opening.discard(opening)
        self.update()

    def _note_exhausted(self, error: OSError) -> None:
        now, count = time.monotonic(), self._count()
        if now >= self._log_at:
            self._log.error("no room for more than %d connections: %s", count, error)
            self._log_at = now + _LOG_EVERY_S
        self._exhausted_at, self._retry_at = count, now + _RETRY_AFTER_S
