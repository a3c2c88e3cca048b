"""A Unix socket that carries frames between a web worker and a model process."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import numpy as np

from app.shared_model.frames import (
    HEADER_BYTES,
    Buffer,
    Frame,
    WireError,
    decode,
    sizes,
)

# One read returns several frames of a few rows.
_READ_BYTES = 1 << 16
_SEND_BUFFER_BYTES = 4 << 20
# IOV_MAX of Linux.
_MAX_BUFFERS = 1024


class Connection:
    """A connected socket; any thread may send, and one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        """Store a socket, and enlarge its send buffer."""
        self.sock = sock
        # For the replies of a whole batch; the kernel reduces it to its own limit.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        # Bytes received after the last complete frame.
        self._received = b""
        # Buffers that did not fit into the send buffer; a thread sends them.
        self._unsent: list[Buffer] = []
        self._sending = threading.Lock()

    @classmethod
    def connect(cls, path: str) -> Self:
        """Connect to a model process's socket.

        Raises:
            OSError: no model process listens.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        return cls(sock)

    def send(self, buffers: list[Buffer]) -> None:
        """Send encoded frames without waiting for the peer to read them.

        Raises:
            OSError: the peer has closed, or a thread can't be started.
        """
        with self._sending:
            if self._unsent:
                self._unsent += buffers
                return
            self._unsent = self._send_nonblocking(buffers)
            if self._unsent:
                self.start_thread(self._send_unsent, "send rest")

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Start a thread for this connection, or shut the connection down.

        Raises:
            OSError: the thread can't be started.
        """
        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except RuntimeError as error:
            self.shut_down()
            raise ConnectionAbortedError(str(error)) from error

    def receive(self) -> list[Frame]:
        """Wait for a frame; return all complete ones, or none if the peer has closed.

        Raises:
            WireError: the bytes are not a frame, or the last frame is incomplete.
            OSError: the connection is broken.
        """
        data = self._received or self.sock.recv(_READ_BYTES)
        if not data:
            return []
        while len(data) < HEADER_BYTES:
            data += self._read_more()
        frames: list[Frame] = []
        begin, view = 0, memoryview(data)
        while len(data) - begin >= HEADER_BYTES:
            head_size, size = sizes(data, begin)
            end = begin + size
            if end > len(data):
                if not frames:
                    frames.append(decode(self._read_whole(data, end), head_size))
                    begin = len(data)
                break
            frames.append(decode(view[begin:end], head_size))
            begin = end
        self._received = data[begin:]
        return frames

    def shut_down(self) -> None:
        """End `receive` on both sides; the socket stays open until `close`."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket, after the last `receive`."""
        with self._sending:
            self.sock.close()

    def _read_more(self) -> bytes:
        data = self.sock.recv(_READ_BYTES)
        if not data:
            raise WireError("the other end closed within a frame")
        return data

    def _read_whole(self, begin: bytes, size: int) -> memoryview:
        """Return a frame of `size` bytes, which begins with those received so far."""
        try:
            whole = np.empty(size, np.uint8).data
        except (MemoryError, ValueError) as error:
            raise WireError(f"a frame of {size} bytes does not fit") from error
        whole[: len(begin)] = begin
        missing = whole[len(begin) :]
        while missing:
            count = self.sock.recv_into(missing)
            if not count:
                raise WireError("the other end closed within a frame")
            missing = missing[count:]
        return whole

    def _send_nonblocking(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send as much as fits into the send buffer, and return the rest."""
        with suppress(BlockingIOError):
            while buffers:
                first = buffers[:_MAX_BUFFERS]
                sent = self.sock.sendmsg(first, (), socket.MSG_DONTWAIT)
                buffers = _after(buffers, sent)
        return buffers

    def _send_unsent(self) -> None:
        """Send in a thread that ends when all is sent."""
        try:
            while True:
                sent = self.sock.sendmsg(self._unsent[:_MAX_BUFFERS])
                with self._sending:
                    self._unsent = _after(self._unsent, sent)
                    if not self._unsent:
                        return
        except OSError:
            self.shut_down()


def _after(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """Return the buffers without the first `sent` bytes."""
    for done, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[done + 1 :]]
        sent -= len(buffer)
    return []
