"""A request of Gunicorn's threaded worker that is under way."""

from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any

from gunicorn.workers.gthread import TConn

from app.workers.patient import SENDING_S
from app.workers.quiet_socket import QuietSocket
from app.workers.unreader import limit_sending


class Turn:
    """The coroutine that answers a request, and where its answer goes."""

    __slots__ = ("conn", "left", "line", "pool")

    line: Coroutine[Any, Any, bool]

    def __init__(self, conn: TConn, pool: Executor) -> None:
        """Store the connection, and who calls what takes long.

        `left` is what could not be sent without a wait.
        """
        self.conn = conn
        self.pool = pool
        self.left = b""

    def sendall(self, data: bytes) -> None:
        """Send what the kernel takes at once; the rest is left, under TLS all."""
        sock, sent = self.conn.sock, 0
        if isinstance(sock, QuietSocket) and not self.left:
            sent = sock.send_at_once(data)
        self.left += data[sent:]

    def send_rest(self) -> None:
        """Send what is left under TLS, however long it takes the client to take it.

        Raises:
            OSError: it takes none for too long, or has gone.
        """
        limit_sending(self.conn.sock, SENDING_S)
        self.conn.sock.sendall(self.left)
        self.left = b""
