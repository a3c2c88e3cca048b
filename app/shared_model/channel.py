"""A web worker's connection to one model process, for many calls at a time."""

import itertools
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Self, TypeAlias

from app.batching.job import Job, notify
from app.errors import Abandoned, BasketError, Late, ModelProcessGone, Stopping
from app.shared_model.connection import FrameConnection
from app.shared_model.frames import Buffer, Frame, encode
from app.shared_model.json_values import error_from_json
from app.shared_model.row_count import RowCount

_log = logging.getLogger(__name__)
# Returns the number of a call.
next_number = itertools.count(1).__next__
DIED = "the model process has died, another takes its place"
# Takes the reply to a call, or an error, once. Returns the job whose waiter is then to
# be notified, if any.
TakeReply: TypeAlias = Callable[[Frame | BasketError], Job | None]


class Channel:
    """Calls under way, whose replies come in any order.

    The jobs of all replies of one read are notified together, by the event loop if the
    connection is attached to one.
    """

    def __init__(self, sock: socket.socket, rows: RowCount) -> None:
        """Store a connected socket, and the model process's number of rows."""
        self.connection = FrameConnection(sock, self._take, self._closed)
        self.rows = rows.rows
        self._calls: dict[int, TakeReply] = {}
        self._has_no_calls = threading.Condition()
        self._updates: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        # What later calls get, once the channel is closed.
        self._error: BasketError | None = None

    @classmethod
    def connect(cls, path: str) -> Self:
        """Connect to a model process's socket, and subscribe to its catalog.

        Raises:
            OSError: no model process answers.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
            sock.sendall(b"".join(encode(Frame({"subscribe": True}))))
            _, fds, _, _ = socket.recv_fds(sock, 1, 1)
            if not fds:
                raise ConnectionResetError(DIED)
        except OSError:
            sock.close()
            raise
        rows = RowCount(fds[0])
        rows.close()
        return cls(sock, rows)

    def is_closed(self) -> bool:
        """Return whether all further calls fail."""
        return self._error is not None

    def is_idle(self) -> bool:
        """Return whether the model process has no rows, or has died."""
        return not self._calls and (self.is_closed() or not self.rows())

    def call(self, number: int, frame: list[Buffer], take_reply: TakeReply) -> None:
        """Send an encoded call, with a number of `next_number`, without waiting."""
        self._calls[number] = take_reply
        self.connection.send(frame)
        # Checked after the call was stored: else `close` could miss it.
        if self._error is not None:
            self._fail(number, self._error)

    def call_and_wait(self, meta: Mapping[str, Any], timeout_s: float) -> None:
        """Call, and wait until the model process has done it.

        Raises:
            Late: there is no reply in time.
            BasketError: the model process's own error, or it has died.
        """
        future: Future[Frame | BasketError] = Future()
        number = next_number()
        frame = encode(Frame({**meta, "number": number}))
        self.call(number, frame, future.set_result)
        try:
            reply = future.result(timeout_s)
        except TimeoutError as error:
            raise Late("the model process gave no answer in time") from error
        if isinstance(reply, BasketError):
            raise reply
        if "error" in reply.meta:
            raise error_from_json(reply.meta)

    def cancel(self, number: int) -> None:
        """Fail a call for whose reply nobody waits, unless it has one."""
        if number in self._calls:
            self.send({"cancel": [number]})
            self._fail(number, Abandoned("the client closed the connection"))

    def send(self, meta: Mapping[str, Any]) -> None:
        """Send a message that has no reply."""
        self.connection.send(encode(Frame(meta)))

    def updates(self) -> Iterator[Mapping[str, Any]]:
        """Yield updates of the model process's catalog until the channel is closed."""
        while (update := self._updates.get()) is not None:
            yield update

    def stop(self, timeout_s: float) -> None:
        """Wait for the calls under way, and fail the rest and all later ones."""
        with self._has_no_calls:
            self._has_no_calls.wait_for(lambda: not self._calls, timeout_s)
        self.close(Stopping("the server is stopping"))

    def close(self, error: BasketError) -> None:
        """Fail all calls, now and later, with this error."""
        self._error = self._error or error
        self.connection.shut_down()
        for number in list(self._calls):
            self._fail(number, self._error)

    def _closed(self) -> None:
        self.close(ModelProcessGone(DIED))
        self._updates.put(None)

    def _take(self, frames: list[Frame]) -> None:
        answered = []
        for frame in frames:
            number = frame.meta.get("number")
            if number is None:
                self._updates.put(frame.meta)
                continue
            take_reply = self._calls.pop(number, None)
            if take_reply is None:
                continue
            try:
                job = take_reply(frame)
            except Exception:  # must not harm other calls
                _log.exception("a reply of the model process is malformed")
                job = take_reply(BasketError("internal error"))
            if job is not None:
                answered.append(job)
        notify(answered)
        self._tell_if_idle()

    def _fail(self, number: int, error: BasketError) -> None:
        take_reply = self._calls.pop(number, None)
        if take_reply is not None:
            take_reply(error)
            self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self._calls:
            with self._has_no_calls:
                self._has_no_calls.notify_all()
