"""A web worker's end of its connection to one life of a model process."""

import itertools
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self

from app.batching.job import Job, notify
from app.engines.base import Tensors
from app.errors import Abandoned, BasketError, Late, ModelProcessGone
from app.shared_model.connection import Connection
from app.shared_model.frames import Frame, WireError, encode
from app.shared_model.load import Load

_log = logging.getLogger(__name__)
GONE = "the model process has died, another takes its place"
# How often a hang-up of those who wait for an answer is asked for.
_LOOK_EVERY_S = 0.05


class Question(Protocol):
    """What is asked; it gets an answer or an error, once."""

    def answer(self, frame: Frame) -> Job | None:
        """Take the answer; gives the job that is to be told now, if any is.

        Where it raises it has not been answered, and is to be failed.
        """
        ...

    def fail(self, error: BasketError) -> None:
        """There will be no answer."""
        ...

    def is_gone(self) -> bool:
        """Say whether nobody waits for the answer any more."""
        ...


class Channel:
    """Any number of questions at a time, whose answers come in any order.

    Who asks is not kept waiting. A thread receives, and tells all who are answered by
    what came in one piece. Another one asks whether those who wait have gone.
    """

    def __init__(self, connection: Connection, load: Load) -> None:
        """Take over the connection; `load` is the process's number of rows."""
        self._connection = connection
        self._load = load
        self._numbers = itertools.count(1)
        self._asked: dict[int, Question] = {}
        self._has_asked = threading.Event()
        self._news: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._end: BasketError | None = None

    @classmethod
    def to(cls, path: str) -> Self:
        """Connect to the model process that listens there.

        Raises:
            OSError: nobody does.
        """
        connection = Connection.to(path)
        try:
            connection.send(encode(Frame({"watch": True})))
            _, fds, _, _ = socket.recv_fds(connection.sock, 1, 1)
            if not fds:
                raise ConnectionResetError(GONE)
        except OSError:
            connection.close()
            raise
        load = Load(fds[0])
        load.close()
        return cls(connection, load)

    def start(self) -> None:
        """Begin to receive.

        Raises:
            OSError: there are no threads for it.
        """
        try:
            self._connection.start_thread(self._look_after, "hang-ups")
            self._connection.start_thread(self._receive, "answers")
        except OSError:
            self._finish()
            raise

    def has_ended(self) -> bool:
        """Say whether all who ask get an error."""
        return self._end is not None

    def rows(self) -> int:
        """How many rows the process has now."""
        return self._load.rows()

    def ask(
        self, question: Question, meta: Mapping[str, Any], tensors: Tensors
    ) -> None:
        """Send a question, which is answered or failed later, unless this raises.

        Raises:
            ModelProcessGone: the process has died.
            Stopping: this has been closed.
            TypeError: an array of strings holds something else than bytes.
        """
        number = next(self._numbers)
        frame = encode(Frame({**meta, "number": number}, tensors))
        self._asked[number] = question
        try:
            self._connection.send(frame)
        except OSError:
            self.close(ModelProcessGone(GONE))
        # After it can be seen by `close`.
        if self._end is not None and self._asked.pop(number, None) is not None:
            raise self._end.with_traceback(None)
        self._has_asked.set()

    def order(self, meta: Mapping[str, Any], timeout_s: float) -> Frame:
        """Ask, and block until there is an answer.

        Raises:
            Late: there is none in that time.
            ModelProcessGone: the process has died.
            Stopping: this has been closed.
        """
        order = _Order()
        self.ask(order, meta, {})
        return order.wait(timeout_s)

    def tell(self, meta: Mapping[str, Any]) -> None:
        """Say what wants no answer.

        Raises:
            OSError: the process has died.
        """
        self._connection.send(encode(Frame(meta)))

    def news(self) -> Iterator[Mapping[str, Any]]:
        """What the process says unasked, until it dies or this is closed."""
        while (said := self._news.get()) is not None:
            yield said

    def close(self, error: BasketError) -> None:
        """Answer all who wait, and all who come, with this error."""
        self._end = self._end or error
        self._connection.end()
        while self._asked:
            try:
                _, question = self._asked.popitem()
            except KeyError:
                break
            question.fail(self._end)

    def _receive(self) -> None:
        try:
            while frames := self._connection.receive():
                self._take(frames)
        except (OSError, WireError):
            pass
        finally:
            self._finish()

    def _finish(self) -> None:
        """Nobody receives any more."""
        self.close(ModelProcessGone(GONE))
        self._connection.close()
        self._news.put(None)
        self._has_asked.set()

    def _take(self, frames: list[Frame]) -> None:
        answered = []
        for frame in frames:
            number = frame.meta.get("number")
            if number is None:
                self._news.put(frame.meta)
                continue
            question = self._asked.pop(number, None)
            if question is None:
                continue
            try:
                job = question.answer(frame)
            except Exception:  # must not end the thread
                _log.exception("an answer of the model process makes no sense")
                question.fail(BasketError("internal error"))
                continue
            if job is not None:
                answered.append(job)
        notify(answered)

    def _look_after(self) -> None:
        """Take back what nobody waits for."""
        while self._has_asked.wait():
            self._has_asked.clear()
            # Only now, so that no end that comes in between is missed.
            if self._end is not None:
                return
            time.sleep(_LOOK_EVERY_S)
            asked = list(self._asked.items())
            gone = [number for number, question in asked if question.is_gone()]
            if gone:
                self._give_up(gone)
            if self._asked:
                self._has_asked.set()

    def _give_up(self, numbers: list[int]) -> None:
        with suppress(OSError):
            self.tell({"drop": numbers})
        for number in numbers:
            question = self._asked.pop(number, None)
            if question is not None:
                question.fail(Abandoned("the client closed the connection"))


class _Order:
    """A Question that a thread waits for."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._error: BasketError = Late("the model process gave no answer in time")
        self._answered = threading.Event()

    def answer(self, frame: Frame) -> Job | None:
        self._frame = frame
        self._answered.set()
        return None

    def fail(self, error: BasketError) -> None:
        self._error = error
        self._answered.set()

    def is_gone(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> Frame:
        self._answered.wait(timeout_s)
        if self._frame is None:
            raise self._error.with_traceback(None)
        return self._frame
