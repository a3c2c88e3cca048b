"""A web worker's end: connections to a model process, and a Runner on top of them."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.engines.base import Tensors
from app.errors import Abandoned, BasketError, Late, ModelProcessGone, Stopping
from app.hang_up import HungUp
from app.serving.job import Job, tell
from app.shared_model import failures
from app.shared_model.load import Load
from app.shared_model.wire import Connection, Frame, WireError

# The model process answers for itself when a deadline passes; this long after, what
# it says is not waited for any more.
_GRACE_S = 0.25
# How often a client's hang-up is asked for where the kernel's event is not seen:
# gevent's poll knows no POLLRDHUP.
_LOOK_EVERY_S = 0.25


class Channel:
    """Pooled connections to one life of a model process.

    A thread or greenlet takes the connection that was used last, and has it for
    itself for one question and its answer. After `close` there are no more.
    """

    def __init__(self, path: str, load: Load) -> None:
        """Store where the process listens, and its number of rows."""
        self._path = path
        self._load = load
        self._idle: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._end: BasketError | None = None

    def rows(self) -> int:
        """How many rows the process has now."""
        return self._load.rows()

    def ask(
        self,
        meta: dict[str, Any],
        tensors: Tensors | None,
        deadline: float,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Frame:
        """One question and its answer; `deadline` is on the monotonic clock.

        Raises:
            ModelProcessGone: the process died.
            Late: there is no answer yet.
            Abandoned: the client has hung up.
        """
        connection = self._take()
        frame = None
        try:
            connection.send(meta, tensors)
            _wait(connection.sock, deadline + _GRACE_S, is_gone)
            frame = connection.receive()
        except (OSError, WireError):
            pass
        finally:
            self._busy.discard(connection)
            if frame is None:
                connection.close()
            else:
                self._idle.append(connection)
        if frame is None:
            raise self._why_ended()
        return frame

    def close(self, error: BasketError) -> None:
        """Answer all who wait, and all who come, with this error."""
        self._end = error
        while self._idle:
            self._idle.pop().close()
        for connection in list(self._busy):
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _take(self) -> Connection:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        self._busy.add(connection)
        # After it can be seen by `close`.
        if self._end is not None:
            self._busy.discard(connection)
            connection.close()
            raise self._why_ended()
        return connection

    def _connect(self) -> Connection:
        try:
            return connect(self._path)
        except OSError:
            raise self._why_ended() from None

    def _why_ended(self) -> BasketError:
        error = self._end or ModelProcessGone("the model process has died")
        return error.with_traceback(None)


class RemoteRunner:
    """One version's Runner: its jobs go to the model process with the least rows."""

    runs_in_submit = True

    def __init__(self, name: str, version: int) -> None:
        """Store whose jobs these are; `add` says where they can go."""
        self._key = (name, version)
        # Jobs under way on each channel, those that are given up too.
        self._under_way: dict[Channel, int] = {}
        self._leaving: set[Channel] = set()
        self._closed = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Nothing to start."""

    def add(self, channel: Channel) -> None:
        """Send jobs there too."""
        with self._changed:
            self._under_way.setdefault(channel, 0)

    def remove(self, channel: Channel, timeout_s: float) -> None:
        """Send no more jobs there, and wait for those that are under way."""
        with self._changed:
            self._leaving.add(channel)
            self._changed.wait_for(lambda: not self._under_way.get(channel), timeout_s)
            self._under_way.pop(channel, None)
            self._leaving.discard(channel)

    def channels(self) -> set[Channel]:
        """Where jobs can go."""
        with self._changed:
            return self._under_way.keys() - self._leaving

    def submit(self, job: Job) -> None:
        """Have the job run; it is answered on return.

        Raises:
            BasketError: whatever the model process's own runner refuses it with.
        """
        channel = self._choose()
        name, version = self._key
        asked = {
            "predict": [name, version],
            "signature": job.signature_name,
            "deadline": job.deadline,
            "client": job.client,
            "reserve_s": job.reserve_s,
        }
        try:
            frame = channel.ask(asked, job.inputs, job.deadline, job.is_gone)
        except BasketError as error:
            job.fail(error)
            return
        finally:
            self._done(channel)
        _fill_in(job, frame)

    def stuck_s(self) -> float:
        """Never: the model process looks after itself."""
        return 0.0

    def close(self, timeout_s: float) -> None:
        """Let no more jobs in, and wait for those that are under way."""
        give_up_at = time.monotonic() + timeout_s
        with self._changed:
            self._closed = True
        for channel in self.channels():
            self.remove(channel, max(give_up_at - time.monotonic(), 0))

    def _choose(self) -> Channel:
        with self._changed:
            there = self._under_way.keys() - self._leaving
            if self._closed:
                raise Stopping("the server is stopping")
            if not there:
                raise ModelProcessGone("the model process has died")
            channel = min(there, key=Channel.rows)
            self._under_way[channel] += 1
            return channel

    def _done(self, channel: Channel) -> None:
        with self._changed:
            if channel in self._under_way:
                self._under_way[channel] -= 1
            if self._leaving:
                self._changed.notify_all()


def connect(path: str) -> Connection:
    """A connection to the model process that listens there.

    Raises:
        OSError: nobody does.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return Connection(sock)


def _wait(sock: socket.socket, deadline: float, is_gone: Callable[[], bool]) -> None:
    """Block until there is something to read, or nobody who wants it."""
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    if isinstance(is_gone, HungUp):
        poller.register(is_gone.fd, select.POLLRDHUP)
    while True:
        left_s = deadline - time.monotonic()
        events = poller.poll(1000 * max(min(left_s, _LOOK_EVERY_S), 0))
        if any(fd == sock.fileno() for fd, _ in events):
            return
        if is_gone():
            raise Abandoned("the client closed the connection")
        if left_s <= 0:
            raise Late("no answer was ready before the request's deadline")


def _fill_in(job: Job, frame: Frame) -> None:
    meta = frame.meta
    if "error" in meta:
        error = failures.rebuild(meta)
        if meta.get("refused"):
            raise error
        job.fail(error)
        return
    # One clock for all processes of a machine.
    started_at, finished_at = meta["times"]
    job.start(started_at)
    if job.add(0, frame.tensors, meta["batch_rows"], finished_at):
        tell([job])
