"""Answers that are larger than what the kernel takes at once, and their clients.

A thread that waited for each would be kept by a client that takes little at a time, for
as long as that likes. So the main loop sends some more whenever there is room.
"""

import socket
import ssl
import time
from collections.abc import Callable
from selectors import EVENT_WRITE

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.workers.patient import SENDING_S
from app.workers.quiet_socket import QuietSocket

# Bytes at a time, so that others have their turn.
_PIECE_BYTES = 1 << 18
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Sending:
    """The connections of a worker that the rest of an answer is sent on."""

    def __init__(
        self, worker: ThreadWorker, end: Callable[[TConn, bool], None]
    ) -> None:
        """Store the worker; `end` is told of each connection, and whether it is kept.

        One whose client takes nothing for too long, or has gone, is not.
        """
        self._worker = worker
        self._end = end
        # When each is given up, the next one first; what is left; whether it is kept.
        self._left: dict[TConn, tuple[float, memoryview, bool]] = {}

    def __contains__(self, conn: TConn) -> bool:
        """Say whether a connection's answer is being sent."""
        return conn in self._left

    def begin(self, conn: TConn, rest: bytes, keeps: bool) -> None:
        """Send the rest of an answer; `keeps` is what `end` is told when it is sent.

        The connection is in the poller for nothing else meanwhile.
        """
        self._wait(conn, memoryview(rest), keeps)
        self._worker.poller.register(
            conn.sock, EVENT_WRITE, lambda _: self._send_more(conn)
        )

    def end_late(self) -> None:
        """Give up those whose clients have taken nothing for too long."""
        while self._left:
            conn, (until, _, _) = next(iter(self._left.items()))
            if until > time.monotonic():
                break
            self._finish(conn, keeps=False)

    def _wait(self, conn: TConn, rest: memoryview, keeps: bool) -> None:
        self._left.pop(conn, None)
        self._left[conn] = (time.monotonic() + SENDING_S, rest, keeps)

    def _send_more(self, conn: TConn) -> None:
        _, rest, keeps = self._left[conn]
        try:
            sent = send_at_once(conn.sock, rest[:_PIECE_BYTES])
        except OSError:
            self._finish(conn, keeps=False)
            return
        if not sent:
            return
        if sent < len(rest):
            self._wait(conn, rest[sent:], keeps)
        else:
            self._finish(conn, keeps)

    def _finish(self, conn: TConn, keeps: bool) -> None:
        del self._left[conn]
        self._worker.poller.unregister(conn.sock)
        self._end(conn, keeps)


def send_at_once(sock: socket.socket, data: bytes | memoryview) -> int:
    """Send as much as needs no wait, encrypted under TLS; gives the number of bytes.

    Raises:
        OSError: the client has gone.
    """
    if isinstance(sock, QuietSocket):
        return sock.send_at_once(bytes(data))
    return _send_by_tls(sock, memoryview(data)[:_PIECE_BYTES])


def _send_by_tls(sock: socket.socket, piece: memoryview) -> int:
    """TLS takes some KiB in a call, and no flags."""
    before_s, sent = sock.gettimeout(), 0
    sock.setblocking(False)
    try:
        while sent < len(piece):
            sent += sock.send(piece[sent:])
    except _WAITS:
        pass
    finally:
        sock.settimeout(before_s)
    return sent
