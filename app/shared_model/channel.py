"""A web worker's connection to one model process, for many calls at a time."""

import itertools
import logging
import queue
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, Self

from app.batching.job import Job, notify
from app.engines.base import Tensors
from app.errors import Abandoned, BasketError, Late, ModelProcessGone
from app.shared_model.connection import Connection
from app.shared_model.frames import Frame, WireError, encode
from app.shared_model.row_count import RowCount

_log = logging.getLogger(__name__)
DIED = "the model process has died, another takes its place"


class Call(Protocol):
    """A call to the model process, which gets a reply or an error, once."""

    def take_reply(self, frame: Frame) -> Job | None:
        """Store the reply, and return the job that is to be notified, if any.

        If this raises, `fail` is called next.
        """
        ...

    def fail(self, error: BasketError) -> None:
        """Store an error; there will be no reply."""
        ...


class Channel:
    """Calls under way, whose replies come in any order.

    One thread receives, and notifies the jobs of all replies of one read together.
    """

    def __init__(self, connection: Connection, rows: RowCount) -> None:
        """Store a connection, and the model process's number of rows."""
        self._connection = connection
        self._rows = rows
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._updates: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        # What later calls raise, once the channel is closed.
        self._error: BasketError | None = None

    @classmethod
    def connect(cls, path: str) -> Self:
        """Connect to a model process's socket, and subscribe to its catalog.

        Raises:
            OSError: no model process answers.
        """
        connection = Connection.connect(path)
        try:
            connection.send(encode(Frame({"subscribe": True})))
            _, fds, _, _ = socket.recv_fds(connection.sock, 1, 1)
            if not fds:
                raise ConnectionResetError(DIED)
        except OSError:
            connection.close()
            raise
        rows = RowCount(fds[0])
        rows.close()
        return cls(connection, rows)

    def start(self) -> None:
        """Start to receive.

        Raises:
            OSError: a thread can't be started.
        """
        try:
            self._connection.start_thread(self._receive, "replies")
        except OSError:
            self._finish()
            raise

    def is_closed(self) -> bool:
        """Return whether all further calls raise."""
        return self._error is not None

    def rows(self) -> int:
        """Return the number of rows that wait or run in the model process."""
        return self._rows.rows()

    def call(self, call: Call, meta: Mapping[str, Any], tensors: Tensors) -> int:
        """Send a call without waiting; it gets a reply or fails, unless this raises.

        Return its number.

        Raises:
            ModelProcessGone: the model process has died.
            Stopping: the channel was closed so.
            TypeError: an array of strings holds a value that is not bytes.
        """
        number = next(self._numbers)
        frame = encode(Frame({**meta, "number": number}, tensors))
        self._calls[number] = call
        try:
            self._connection.send(frame)
        except OSError:
            self.close(ModelProcessGone(DIED))
        # Checked after the call was stored: else `close` could miss it.
        if self._error is not None and self._calls.pop(number, None) is not None:
            raise self._error.with_traceback(None)
        return number

    def cancel(self, number: int) -> None:
        """Fail a call for whose reply nobody waits, and tell the model process."""
        call = self._calls.pop(number, None)
        if call is None:
            return
        with suppress(OSError):
            self.send({"cancel": [number]})
        call.fail(Abandoned("the client closed the connection"))

    def call_and_wait(self, meta: Mapping[str, Any], timeout_s: float) -> Frame:
        """Call, and return the reply.

        Raises:
            Late: there is no reply in time.
            ModelProcessGone: the model process has died.
            Stopping: the channel was closed so.
        """
        call = _BlockingCall()
        self.call(call, meta, {})
        try:
            return call.result(timeout_s)
        except TimeoutError as error:
            raise Late("the model process gave no answer in time") from error

    def send(self, meta: Mapping[str, Any]) -> None:
        """Send a message that has no reply.

        Raises:
            OSError: the model process has died.
        """
        self._connection.send(encode(Frame(meta)))

    def updates(self) -> Iterator[Mapping[str, Any]]:
        """Yield updates of the model process's catalog until the channel is closed."""
        while (update := self._updates.get()) is not None:
            yield update

    def close(self, error: BasketError) -> None:
        """Fail all calls, now and later, with this error."""
        self._error = self._error or error
        self._connection.shut_down()
        while self._calls:
            try:
                _, call = self._calls.popitem()
            except KeyError:  # another thread has taken the last one
                break
            call.fail(self._error)

    def _receive(self) -> None:
        try:
            while frames := self._connection.receive():
                self._take(frames)
        except (OSError, WireError):
            pass
        finally:
            self._finish()

    def _finish(self) -> None:
        self.close(ModelProcessGone(DIED))
        self._connection.close()
        self._updates.put(None)

    def _take(self, frames: list[Frame]) -> None:
        answered = []
        for frame in frames:
            number = frame.meta.get("number")
            if number is None:
                self._updates.put(frame.meta)
                continue
            call = self._calls.pop(number, None)
            if call is None:
                continue
            try:
                job = call.take_reply(frame)
            except Exception:  # must not end the thread
                _log.exception("a reply of the model process is malformed")
                call.fail(BasketError("internal error"))
                continue
            if job is not None:
                answered.append(job)
        notify(answered)


class _BlockingCall(Future[Frame]):
    """A Call whose reply a thread waits for, as the result of a future."""

    def take_reply(self, frame: Frame) -> None:
        self.set_result(frame)

    def fail(self, error: BasketError) -> None:
        self.set_exception(error)
