"""A model process's connection to one web worker."""

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
from app.shared_model import error_json
from app.shared_model.connection import Connection
from app.shared_model.frames import Buffer, Frame, WireError, encode
from app.shared_model.published_catalog import PublishedCatalog
from app.shared_model.row_count import RowCount

_log = logging.getLogger(__name__)
# A web worker that reads nothing for so long is disconnected; it connects again.
_SEND_TIMEOUT_S = 5


class _NumberedJob(Job):
    """A job with the number of the web worker's call."""

    number: int


# A frame, or answered jobs whose replies are encoded when they are sent.
Message: TypeAlias = Frame | Sequence[_NumberedJob]


class WorkerConnection:
    """Submits a web worker's jobs to the runners, and sends their replies."""

    def __init__(
        self,
        connection: Connection,
        catalog: PublishedCatalog,
        loader: Loader,
        rows: RowCount,
        enqueue: Callable[["WorkerConnection", Message], None],
    ) -> None:
        """Store the parts.

        `enqueue` has another thread call `write`, so that batching threads do not
        encode.
        """
        self._connection = connection
        self._catalog = catalog
        self._rows = rows
        self._operations: dict[str, Callable[[Any, float], None]] = {
            "load": loader.load,
            "unload": loader.unload,
            "traffic": lambda split, timeout_s: loader.set_traffic(
                split[0], split[1], timeout_s
            ),
        }
        self._enqueue = enqueue
        # By their numbers; a job that is missing here was canceled.
        self._jobs: dict[int, _NumberedJob] = {}

    def serve(self) -> None:
        """Receive calls until the web worker disconnects."""
        timeout = struct.pack("ll", _SEND_TIMEOUT_S, 0)
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        # A web worker that dies may leave half a frame.
        with suppress(WireError, OSError):
            while frames := self._connection.receive():
                while frames:
                    self._take(frames.pop(0))
        self._catalog.unsubscribe(self)
        for number in list(self._jobs):
            self._cancel(number)
        self._connection.close()

    def write(self, messages: Iterable[Message]) -> None:
        """Encode and send messages, without waiting for the web worker to read them."""
        try:
            buffers = itertools.chain.from_iterable(map(self._encode, messages))
            self._connection.send([*buffers])
        except Exception as error:
            if not isinstance(error, OSError):
                _log.exception("a web worker could not be answered")
            self._connection.shut_down()

    def send(self, meta: Mapping[str, Any]) -> None:
        """Enqueue a message without tensors."""
        self._enqueue(self, Frame(meta))

    def _take(self, frame: Frame) -> None:
        meta = frame.meta
        try:
            if "predict" in meta:
                self._predict(frame)
            elif "cancel" in meta:
                for number in meta["cancel"]:
                    self._cancel(number)
            elif "acknowledge" in meta:
                self._catalog.acknowledge(self, meta["acknowledge"])
            elif "subscribe" in meta:
                socket.send_fds(self._connection.sock, [b"."], [self._rows.fd])
                self._catalog.subscribe(self)
            else:
                (operation,) = self._operations.keys() & meta.keys()
                # It may take minutes.
                self._start_thread("operation", self._operate, operation, meta)
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
            meta["signature"],
            meta["client"],
        )
        job.reserve_s = meta["reserve_s"]
        job.number = number
        job.wake = self._jobs_done
        job.traceparent = meta["traceparent"]
        self._jobs[number] = job
        self._rows.add(job.rows)
        if not served.runner.runs_in_submit:
            self._submit(served.runner, job, meta)
            return
        try:
            self._start_thread("job", self._submit, served.runner, job, meta)
        except RuntimeError as error:  # the thread can't be started
            self._reject(job, meta, error)

    def _cancel(self, number: int) -> None:
        job = self._jobs.pop(number, None)
        if job is not None:
            job.abandon()

    def _submit(
        self, runner: Runner, job: _NumberedJob, meta: Mapping[str, Any]
    ) -> None:
        try:
            runner.submit(job)
        except Exception as error:
            self._reject(job, meta, error)

    def _reject(
        self, job: _NumberedJob, meta: Mapping[str, Any], error: Exception
    ) -> None:
        self._rows.add(-job.rows)
        self._jobs.pop(job.number, None)
        self._refuse(meta, error)

    @staticmethod
    def _start_thread(name: str, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=work, name=name, args=args, daemon=True).start()

    def _operate(self, operation: str, meta: Mapping[str, Any]) -> None:
        try:
            timeout_s = float(meta["timeout_s"])
            self._operations[operation](meta[operation], timeout_s)
            self._catalog.wait_until_acknowledged(timeout_s)
        except Exception as error:
            self._refuse(meta, error)
        else:
            self.send({"number": meta["number"]})

    def _refuse(self, meta: Mapping[str, Any], error: Exception) -> None:
        refused = {"number": meta.get("number"), "refused": True}
        self.send({**_error_values(error), **refused})

    def _jobs_done(self, jobs: Sequence[Job]) -> None:
        self._rows.add(-sum([job.rows for job in jobs]))
        self._enqueue(self, cast("Sequence[_NumberedJob]", jobs))

    def _encode(self, message: Message) -> list[Buffer]:
        if isinstance(message, Frame):
            return encode(message)
        buffers = []
        for job in message:
            if self._jobs.pop(job.number, None) is not None:
                buffers += _reply(job)
        return buffers


def _reply(job: _NumberedJob) -> list[Buffer]:
    number = {"number": job.number}
    try:
        outputs = job.result()
        times = (job.started_at, job.finished_at)
        meta = {"batch_rows": job.batch_rows, "times": times}
        return encode(Frame({**number, **meta}, outputs))
    except Exception as error:
        return encode(Frame({**number, **_error_values(error)}))


def _error_values(error: Exception) -> dict[str, Any]:
    if not isinstance(error, BasketError):
        _log.error("a job of a web worker failed", exc_info=error)
    return error_json.to_json(error)
