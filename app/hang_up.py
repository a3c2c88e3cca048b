"""Whether the other end of a connection has closed it."""

import ctypes
import select
import socket

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
        self.fd = connection.fileno()
        self._asked = _PollFd(self.fd, select.POLLRDHUP, 0)

    def __call__(self) -> bool:
        """Say whether the other end has closed."""
        return bool(_poll(ctypes.byref(self._asked), 1, 0) > 0)
