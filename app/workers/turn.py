"""A request of Gunicorn's threaded worker that is under way."""

from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any

from gunicorn.workers.gthread import TConn

from app.workers.sending import send_at_once


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
        """Send what the kernel takes at once; the rest is left.

        Raises:
            OSError: the client has gone.
        """
        if not self.left:
            data = data[send_at_once(self.conn.sock, data) :]
        self.left += data
