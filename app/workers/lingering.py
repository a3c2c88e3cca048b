"""Connections that have had their last answer, while their clients may still send.

Closed with bytes unread, a connection is reset, and its client may lose the answer. So
only this side is closed, and what comes is thrown away until the client closes its
own, as in Gunicorn's `close_graceful`; but the main loop waits, for all at a time, and
for however much a client sends: one whose body is refused may read nothing before it
has sent all.
"""

import contextlib
import socket
import time
from selectors import EVENT_READ

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.workers.body import is_unread
from app.workers.quiet_socket import QuietSocket

# Seconds for which a client is waited for: Gunicorn's.
_LINGER_S = 2.0
_PIECE_BYTES = 1 << 16


class Lingering:
    """Closes the connections of a worker, which counts them until they are closed."""

    def __init__(self, worker: ThreadWorker) -> None:
        """Store the worker; nobody lingers."""
        self._worker = worker
        # When each is closed at the latest, the next one first.
        self._left: dict[QuietSocket, float] = {}

    def close(self, conn: TConn) -> None:
        """Close a connection: at once, or if that could reset it, after a while."""
        if not _is_sending(conn) and not _has_unread_data(conn.sock):
            self._close(conn.sock)
            return
        # An event that was on its way to the old object finds that closed.
        taken = QuietSocket.of(conn.sock)
        taken.setblocking(False)
        try:
            taken.shutdown(socket.SHUT_WR)
            self._worker.poller.register(taken, EVENT_READ, self._drain)
            self._left[taken] = time.monotonic() + _LINGER_S
        except OSError:
            self._close(taken)

    def end_late(self) -> None:
        """Close those whose clients have had their time."""
        while self._left:
            sock, until = next(iter(self._left.items()))
            if until > time.monotonic():
                break
            self._end(sock)

    def _drain(self, sock: QuietSocket) -> None:
        try:
            is_over = not sock.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over:
            self._end(sock)

    def _end(self, sock: QuietSocket) -> None:
        del self._left[sock]
        self._worker.poller.unregister(sock)
        self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.close()
        self._worker.nr_conns -= 1


def _is_sending(conn: TConn) -> bool:
    request = getattr(conn.parser, "mesg", None)
    return request is not None and is_unread(request)


def _has_unread_data(sock: socket.socket) -> bool:
    """Say whether closing would reset; under TLS there is no telling, so yes."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except ValueError:
        return True
    except OSError:
        return False
