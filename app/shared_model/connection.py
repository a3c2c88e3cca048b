"""A Unix socket that carries frames between a web worker and a model process."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from app.shared_model.frames import HEADER_BYTES, Buffer, Frame, decode, sizes

_log = logging.getLogger(__name__)
# One read returns several frames of a few rows. A larger frame is read into memory of
# its own.
_READ_BYTES = 1 << 16
# For the replies of a whole batch; the kernel reduces it to its own limit.
_SEND_BUFFER_BYTES = 4 << 20
# Frames of one turn of the event loop are written together, at most so many small ones:
# the peer then works on them while the turn goes on.
_BUFFERS_A_WRITE = 4
# IOV_MAX of Linux.
_MAX_BUFFERS = 1024


class FrameConnection:
    """A connected socket, read by an event loop, or by a thread until it has one.

    Any thread may send, and no sender waits for the peer to read.
    """

    def __init__(
        self,
        sock: socket.socket,
        take: Callable[[list[Frame]], None],
        closed: Callable[[], None],
        send_timeout_s: float = 0.0,
    ) -> None:
        """Store the parts, and enlarge the send buffer.

        The reader calls `take` with all frames of one read, and `closed` at the end,
        once. On an event loop a peer that makes no room in the send buffer for
        `send_timeout_s` is disconnected; 0: it is not.
        """
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._sock = sock
        self._take = take
        self._closed = closed
        self._send_timeout_s = send_timeout_s
        self._timeout: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._read_buffer = self._received = memoryview(bytearray(_READ_BYTES))
        # Bytes of an incomplete frame in `_received`.
        self._size = 0
        self._unsent: list[Buffer] = []
        # Whether the event loop, or a thread, will send `_unsent`.
        self._is_sending = False
        # Whether it will do so at the end of this turn.
        self._is_scheduled = False
        self._sending = threading.Lock()

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start to read on an event loop; None: in a thread."""
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._read_on, loop)
            else:
                _start_thread(self._read_in_thread, "replies")
        except RuntimeError:  # the event loop is closed, or there are too many threads
            self._end()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send on the event loop that runs in this thread, and read on it soon.

        A thread that reads ends after its next read.
        """
        self._loop_thread = threading.get_ident()
        self._loop = loop

    def send(self, buffers: list[Buffer]) -> None:
        """Send encoded frames; if that fails, the connection ends."""
        loop = self._loop
        is_on_loop = threading.get_ident() == self._loop_thread
        with self._sending:
            if self._sock.fileno() < 0:
                return
            self._unsent += buffers
            is_enough = is_on_loop and len(self._unsent) >= _BUFFERS_A_WRITE
            if self._is_sending and not (is_enough and self._is_scheduled):
                return
            self._is_sending = True
            self._is_scheduled = is_on_loop and not is_enough
        if loop is None or is_enough:
            self._send_unsent()
        elif is_on_loop:
            loop.call_soon(self._send_unsent)
        else:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._send_unsent)

    def shut_down(self) -> None:
        """End the connection; its reader closes the socket. Any thread may call it."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _read_in_thread(self) -> None:
        while self._loop is None:
            if not self._read(0):
                self._end()
                return
        self.start(self._loop)

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.attach(loop)
        loop.add_reader(self._sock, self._read_or_end, loop)

    def _read_or_end(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._read(socket.MSG_DONTWAIT):
            loop.remove_reader(self._sock)
            self._wait_for_room(loop, has_rest=False)
            self._end()

    def _end(self) -> None:
        # Also ends a thread that sends.
        self.shut_down()
        with self._sending:
            self._unsent = []
            self._sock.close()
        self._closed()

    def _read(self, flags: int) -> bool:
        """Read once, and take the frames; return False at the end of the connection."""
        try:
            count = self._sock.recv_into(self._received[self._size :], 0, flags)
            self._size += count
            frames = self._complete_frames()
            if frames:
                self._take(frames)
        except BlockingIOError:
            return True
        except OSError:
            count = 0
        except Exception:
            _log.exception("a message could not be taken")
            count = 0
        return count > 0

    def _complete_frames(self) -> list[Frame]:
        """Return the frames that are complete, and keep the rest.

        Raises:
            Exception: the bytes are no frames.
        """
        received = self._received[: self._size]
        if self._received is self._read_buffer:
            # Rows of a few bytes must not keep a whole buffer.
            received = memoryview(bytes(received))
        frames: list[Frame] = []
        begin = end = 0
        while len(received) - begin >= HEADER_BYTES:
            head_size, size = sizes(received, begin)
            end = begin + size
            if end > len(received):
                break
            frames.append(decode(received[begin:end], head_size))
            begin = end
        rest = received[begin:]
        if frames or end - begin > len(self._received):
            self._received = self._read_buffer
            if end - begin > _READ_BYTES:
                self._received = np.empty(end - begin, np.uint8).data
            self._received[: len(rest)] = rest
            self._size = len(rest)
        return frames

    def _send_unsent(self) -> None:
        """Send what fits into the send buffer now, and the rest when there is room."""
        with self._sending:
            self._is_scheduled = False
            if self._sock.fileno() < 0:  # it has ended in this turn
                return
            try:
                while self._unsent:
                    first = self._unsent[:_MAX_BUFFERS]
                    sent = self._sock.sendmsg(first, (), socket.MSG_DONTWAIT)
                    self._unsent = _after(self._unsent, sent)
            except BlockingIOError:
                pass
            except OSError:
                self.shut_down()
                return
            has_rest = self._is_sending = bool(self._unsent)
        if self._loop is not None and threading.get_ident() == self._loop_thread:
            self._wait_for_room(self._loop, has_rest=has_rest)
        elif has_rest:
            try:
                _start_thread(self._send_in_thread, "send rest")
            except RuntimeError:
                self.shut_down()

    def _wait_for_room(
        self, loop: asyncio.AbstractEventLoop, *, has_rest: bool
    ) -> None:
        """Have the event loop send the rest, if there is any."""
        if self._timeout is not None:
            self._timeout.cancel()
        if not has_rest:
            loop.remove_writer(self._sock)
            return
        loop.add_writer(self._sock, self._send_unsent)
        if self._send_timeout_s:
            self._timeout = loop.call_later(self._send_timeout_s, self.shut_down)

    def _send_in_thread(self) -> None:
        try:
            while self._is_sending:
                sent = self._sock.sendmsg(self._unsent[:_MAX_BUFFERS])
                with self._sending:
                    self._unsent = _after(self._unsent, sent)
                    self._is_sending = bool(self._unsent)
        except OSError:
            self.shut_down()


def _start_thread(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def _after(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """Return the buffers without the first `sent` bytes."""
    for done, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[done + 1 :]]
        sent -= len(buffer)
    return []
