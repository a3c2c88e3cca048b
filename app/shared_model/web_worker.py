"""A model process's end of the connection to one web worker."""

import itertools
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from app.batching.interfaces import Runner
from app.batching.job import Job
from app.errors import BasketError, NotReady
from app.repository.loader import Loader
from app.shared_model import failures
from app.shared_model.connection import Connection
from app.shared_model.frames import Buffer, Frame, WireError, encode
from app.shared_model.load import Load
from app.shared_model.published import PublishedCatalog

_log = logging.getLogger(__name__)
# A web worker that takes nothing for so long is let go; it comes back by itself.
_SEND_WITHIN_S = 5


class _NumberedJob(Job):
    """A job, and by what number the web worker knows it."""

    __slots__ = ("number",)

    number: int


# What a web worker is to hear.
Said: TypeAlias = Frame | Sequence[_NumberedJob]


class WebWorker:
    """Takes a web worker's jobs to the runners, and their answers back."""

    def __init__(
        self,
        connection: Connection,
        catalog: PublishedCatalog,
        loader: Loader,
        load: Load,
        say: Callable[["WebWorker", Said], None],
    ) -> None:
        """Store the parts.

        `say` has `send` called in another thread, so that no batching thread encodes.
        """
        self._connection = connection
        self._catalog = catalog
        self._load = load
        self._orders = {"load": loader.load, "unload": loader.unload}
        self._say = say
        # By their numbers; a job that is not in here has been given up.
        self._under_way: dict[int, _NumberedJob] = {}

    def serve(self) -> None:
        """Receive what the web worker sends, for as long as it lives."""
        limit = struct.pack("ll", _SEND_WITHIN_S, 0)
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        # A web worker that dies ends the connection in the middle of anything.
        with suppress(WireError, OSError):
            while frames := self._connection.receive():
                while frames:
                    self._take(frames.pop(0))
        self._catalog.unwatch(self)
        self._under_way.clear()
        self._connection.close()

    def send(self, said: Iterable[Said]) -> None:
        """Encode and send, without waiting for the web worker to read it."""
        try:
            whole = itertools.chain.from_iterable(map(self._encoded, said))
            self._connection.send([*whole])
        except Exception as error:
            if not isinstance(error, OSError):
                _log.exception("a web worker could not be answered")
            self._connection.end()

    def tell(self, meta: Mapping[str, Any]) -> None:
        """Send it something unasked."""
        self._say(self, Frame(meta))

    def _take(self, frame: Frame) -> None:
        meta = frame.meta
        try:
            if "predict" in meta:
                self._predict(frame)
            elif "drop" in meta:
                for number in meta["drop"]:
                    self._under_way.pop(number, None)
            elif "seen" in meta:
                self._catalog.saw(self, meta["seen"])
            elif "watch" in meta:
                socket.send_fds(self._connection.sock, [b"."], [self._load.fd])
                self._catalog.watch(self)
            else:
                (name,) = self._orders.keys() & meta.keys()
                # It may take minutes.
                self._in_thread("order", self._carry_out, name, meta)
        except Exception as error:
            self._refuse(meta, error)

    def _predict(self, frame: Frame) -> None:
        meta = frame.meta
        name, version = meta["predict"]
        served = self._catalog.find(name, version)
        if served is None:
            raise NotReady(f"model {name!r}: version {version} is not here")
        number = meta["number"]
        job = _NumberedJob(
            frame.tensors,
            meta["deadline"],
            lambda: number not in self._under_way,
            meta["signature"],
            meta["client"],
            meta["reserve_s"],
        )
        job.number = number
        job.wake = self._told
        self._under_way[number] = job
        self._load.add(job.rows)
        if not served.runner.runs_in_submit:
            self._submit(served.runner, job, meta)
            return
        try:
            self._in_thread("job", self._submit, served.runner, job, meta)
        except RuntimeError as error:  # there are no threads
            self._turn_away(job, meta, error)

    def _submit(
        self, runner: Runner, job: _NumberedJob, meta: Mapping[str, Any]
    ) -> None:
        try:
            runner.submit(job)
        except Exception as error:
            self._turn_away(job, meta, error)

    def _turn_away(
        self, job: _NumberedJob, meta: Mapping[str, Any], error: Exception
    ) -> None:
        self._load.add(-job.rows)
        self._under_way.pop(job.number, None)
        self._refuse(meta, error)

    @staticmethod
    def _in_thread(name: str, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=work, name=name, args=args, daemon=True).start()

    def _carry_out(self, order: str, meta: Mapping[str, Any]) -> None:
        try:
            timeout_s = float(meta["timeout_s"])
            self._orders[order](meta[order], timeout_s)
            self._catalog.wait_until_seen(timeout_s)
        except Exception as error:
            self._refuse(meta, error)
        else:
            self.tell({"number": meta["number"]})

    def _refuse(self, meta: Mapping[str, Any], error: Exception) -> None:
        refused = {"number": meta.get("number"), "refused": True}
        self.tell({**_described(error), **refused})

    def _told(self, jobs: Sequence[Job]) -> None:
        self._load.add(-sum([job.rows for job in jobs]))
        self._say(self, cast("Sequence[_NumberedJob]", jobs))

    def _encoded(self, said: Said) -> list[Buffer]:
        if isinstance(said, Frame):
            return encode(said)
        buffers = []
        for job in said:
            if self._under_way.pop(job.number, None) is not None:
                buffers += _answer(job)
        return buffers


def _answer(job: _NumberedJob) -> list[Buffer]:
    number = {"number": job.number}
    try:
        answer = job.wait()
        started_at = job.enqueued_at + answer.queue_s
        times = (started_at, started_at + answer.infer_s)
        meta = {"batch_rows": answer.batch_rows, "times": times}
        return encode(Frame({**number, **meta}, answer.outputs))
    except Exception as error:
        return encode(Frame({**number, **_described(error)}))


def _described(error: Exception) -> dict[str, Any]:
    if not isinstance(error, BasketError):
        _log.error("a job of a web worker failed", exc_info=error)
    return failures.describe(error)
