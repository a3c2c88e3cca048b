"""A stream of frames between a web worker and a model process, in both directions."""

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

# What one read takes; frames of a few rows come whole, and several at a time.
_READ_BYTES = 1 << 16
_SEND_BUFFER_BYTES = 4 << 20
# IOV_MAX of Linux.
_MOST_BUFFERS = 1024


class Connection:
    """A connected socket; any thread may send, one receives."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a socket."""
        self.sock = sock
        # The answers of a batch are to fit; the kernel cuts it down to what it allows.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        # What was read beyond the last whole frame.
        self._ahead = b""
        # What the kernel did not take at once; a thread sends it while there is any.
        self._left: list[Buffer] = []
        self._sending = threading.Lock()

    @classmethod
    def to(cls, path: str) -> Self:
        """Connect to the model process that listens there.

        Raises:
            OSError: nobody does.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        return cls(sock)

    def send(self, buffers: list[Buffer]) -> None:
        """Write encoded frames, without waiting for the other end to read them.

        Raises:
            OSError: the other end has gone, or there is no thread to send the rest.
        """
        with self._sending:
            if self._left:
                self._left += buffers
                return
            self._left = self._send_at_once(buffers)
            if self._left:
                self.start_thread(self._send_rest, "send rest")

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        """Have a thread work for this connection, which ends where there is none.

        Raises:
            OSError: there is none.
        """
        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except RuntimeError as error:
            self.end()
            raise ConnectionAbortedError(str(error)) from error

    def receive(self) -> list[Frame]:
        """Wait for the next frame; all that have come by then.

        Empty: the other end has closed.

        Raises:
            WireError: no frame.
            OSError: the connection is broken.
        """
        data = self._ahead or self.sock.recv(_READ_BYTES)
        if not data:
            return []
        while len(data) < HEADER_BYTES:
            data += self._more()
        frames: list[Frame] = []
        begin, view = 0, memoryview(data)
        while len(data) - begin >= HEADER_BYTES:
            head_size, size = sizes(data, begin)
            end = begin + size
            if end > len(data):
                if not frames:
                    frames.append(decode(self._rest(data, end), head_size))
                    begin = len(data)
                break
            frames.append(decode(view[begin:end], head_size))
            begin = end
        self._ahead = data[begin:]
        return frames

    def end(self) -> None:
        """Have the other end, and whoever waits in `receive`, see the end."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket, once nobody receives any more."""
        with self._sending:
            self.sock.close()

    def _more(self) -> bytes:
        data = self.sock.recv(_READ_BYTES)
        if not data:
            raise WireError("the other end closed within a frame")
        return data

    def _rest(self, begin: bytes, size: int) -> memoryview:
        """A frame of so many bytes, of which the first have come."""
        try:
            whole = np.empty(size, np.uint8).data
        except (MemoryError, ValueError) as error:
            raise WireError(f"a frame of {size} bytes does not fit") from error
        whole[: len(begin)] = begin
        left = whole[len(begin) :]
        while left:
            count = self.sock.recv_into(left)
            if not count:
                raise WireError("the other end closed within a frame")
            left = left[count:]
        return whole

    def _send_at_once(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send what needs no wait; what is left."""
        with suppress(BlockingIOError):
            while buffers:
                few = buffers[:_MOST_BUFFERS]
                sent = self.sock.sendmsg(few, (), socket.MSG_DONTWAIT)
                buffers = _unsent(buffers, sent)
        return buffers

    def _send_rest(self) -> None:
        """Send until nothing is left; `send` then starts another thread."""
        try:
            while True:
                sent = self.sock.sendmsg(self._left[:_MOST_BUFFERS])
                with self._sending:
                    self._left = _unsent(self._left, sent)
                    if not self._left:
                        return
        except OSError:
            self.end()


def _unsent(buffers: list[Buffer], sent: int) -> list[Buffer]:
    for done, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[done + 1 :]]
        sent -= len(buffer)
    return []
