"""A socket that keeps the interpreter's lock for what does not have to wait.

Python lets go of its lock around every call of the kernel. Among many request threads
each time is a fight for it, with several switches between threads, which take longer
than to copy a small request out of the kernel or an answer into it.
"""

import ctypes
import errno
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

# A PyDLL keeps the lock.
_libc = ctypes.PyDLL(None, use_errno=True)
_MUST_WAIT = (errno.EAGAIN, errno.EINTR)
# Plain numbers: those of the module are enums, which take long to join.
_AT_ONCE, _NO_SIGNAL = int(socket.MSG_DONTWAIT), int(socket.MSG_NOSIGNAL)
# Larger pieces are worth letting others run meanwhile.
_SMALL_BYTES = 1 << 16

_libc.recv.argtypes = _libc.send.argtypes = (
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
)
_libc.recv.restype = _libc.send.restype = ctypes.c_ssize_t


class _Room(threading.local):
    """Where a thread receives, so that no memory is cleared for each time."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_SMALL_BYTES)
        self.view = memoryview(self.buffer)


_room = _Room()


class QuietSocket(socket.socket):
    """A connected socket; what has to wait, or is large, is left to Python's own."""

    @classmethod
    def of(cls, sock: socket.socket) -> Self:
        """Take a socket's connection over."""
        timeout_s = sock.gettimeout()
        taken = cls(fileno=sock.detach())
        # The kernel keeps what was set; this object does not know of it.
        socket.socket.settimeout(taken, timeout_s)
        return taken

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """As socket.recv."""
        if bufsize <= _SMALL_BYTES:
            count = self._at_once(_libc.recv, _room.buffer, bufsize, flags)
            if count is not None:
                return bytes(_room.view[:count])
        return super().recv(bufsize, flags)

    def recv_into(
        self, buffer: "WriteableBuffer", nbytes: int = 0, flags: int = 0
    ) -> int:
        """As socket.recv_into."""
        view = memoryview(buffer).cast("B")
        size = nbytes or len(view)
        if 0 < size <= _SMALL_BYTES:
            # Not an array of this size: ctypes would make a class for it.
            target = ctypes.byref(ctypes.c_char.from_buffer(view))
            count = self._at_once(_libc.recv, target, size, flags)
            if count is not None:
                return count
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: "ReadableBuffer", flags: int = 0, /) -> None:
        """As socket.sendall."""
        sent = 0
        if isinstance(data, bytes) and len(data) <= _SMALL_BYTES:
            sent = self.send_at_once(data, flags)
        if sent != memoryview(data).nbytes:
            super().sendall(memoryview(data)[sent:], flags)

    def send_at_once(self, data: bytes, flags: int = 0) -> int:
        """Send as much as needs no wait; gives the number of bytes."""
        return self._at_once(_libc.send, data, len(data), flags | _NO_SIGNAL) or 0

    def setblocking(self, flag: bool, /) -> None:
        """As socket.setblocking."""
        self.settimeout(None if flag else 0)

    def settimeout(self, value: float | None, /) -> None:
        """As socket.settimeout, without asking the kernel for what is set."""
        if value != self.gettimeout():
            super().settimeout(value)

    def _at_once(self, call: Any, buffer: Any, size: int, flags: int) -> int | None:
        """What the call gives if it need not wait, else None."""
        count: int = call(self.fileno(), buffer, size, flags | _AT_ONCE)
        if count >= 0:
            return count
        number = ctypes.get_errno()
        if number in _MUST_WAIT:
            return None
        raise OSError(number, os.strerror(number))
