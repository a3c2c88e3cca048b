"""What the connection tells about the client while its job waits."""

import ctypes
import select
import socket
from collections.abc import Callable
from typing import Any

# A PyDLL keeps the interpreter's lock. `select.poll` lets go of it, and among many
# request threads the batching thread would wait for it again, milliseconds for each
# job of a batch.
_poll = ctypes.PyDLL(None).poll


class _PollFd(ctypes.Structure):
    """`struct pollfd` of poll(2)."""

    _fields_ = (
        ("fd", ctypes.c_int),
        ("events", ctypes.c_short),
        ("revents", ctypes.c_short),
    )


class HungUp:
    """A check of one connection.

    It asks the kernel and reads nothing, so it works under TLS and beside a
    pipelined request.
    """

    def __init__(self, connection: socket.socket) -> None:
        """Watch an open connection."""
        self._asked = _PollFd(connection.fileno(), select.POLLRDHUP, 0)

    def __call__(self) -> bool:
        """Say whether the other end has closed."""
        return bool(_poll(ctypes.byref(self._asked), 1, 0) > 0)


def hung_up(environ: dict[str, Any]) -> Callable[[], bool]:
    """A check that says whether the client has closed its connection.

    Where the server gives no socket it always says no.
    """
    connection: socket.socket | None = environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    if connection.fileno() < 0:
        return lambda: True
    return HungUp(connection)
