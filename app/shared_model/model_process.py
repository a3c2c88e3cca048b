"""The model process, which runs the jobs of all web workers."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import uvloop

from app import memory
from app.batching.interfaces import Runner
from app.batching.job import Job, Wake
from app.errors import BasketError, NotReady
from app.repository.health import Health
from app.repository.loader import Loader
from app.shared_model.connection import Connection
from app.shared_model.frames import Buffer, Frame, encode
from app.shared_model.json_values import error_to_json
from app.shared_model.published_catalog import PublishedCatalog
from app.shared_model.row_count import RowCount

_log = logging.getLogger(__name__)
# Seconds of a shutdown that are reserved for closing the models.
_CLOSE_S = 0.2
# Of those, for writing the last replies.
_LAST_REPLIES_S = 0.05
_ACCEPT_RETRY_S = 0.1
# A web worker that reads nothing for so long is disconnected; it connects again.
_SEND_TIMEOUT_S = 5.0


class ModelProcess:
    """Serves one listening socket, with a WorkerConnection for each web worker.

    One event loop reads the calls of all web workers and writes the replies. A batch
    wakes it once, and is one write for each web worker.
    """

    def __init__(
        self,
        catalog: PublishedCatalog,
        loader: Loader,
        listener: socket.socket,
        health: Health,
        flush_metrics: Callable[[], None] = lambda: None,
        send_timeout_s: float = _SEND_TIMEOUT_S,
    ) -> None:
        """Store the parts; `loader` fills `catalog`."""
        self._flush_metrics = flush_metrics
        self._catalog = catalog
        self._loader = loader
        self._listener = listener
        self._health = health
        self._send_timeout_s = send_timeout_s
        self._rows = RowCount()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(
            target=self._run, name="model process", daemon=True
        )

    def start(self) -> None:
        """Start to load models and to accept connections."""
        memory.freeze()
        self._loader.start()
        self._listener.setblocking(False)
        self._loop = uvloop.new_event_loop()
        self._loop.call_soon(self._listen)
        self._thread.start()

    def tick(self) -> None:
        """Write pending metrics; called several times a second."""
        self._flush_metrics()

    def hangs(self) -> bool:
        """Return whether a model makes no progress for longer than a request may."""
        return bool(self._health.stuck_here())

    def close(self, timeout_s: float) -> None:
        """Serve until all web workers have disconnected, then close the models."""
        give_up_at = time.monotonic() + timeout_s
        if not self._catalog.wait_until_unsubscribed(max(timeout_s - _CLOSE_S, 0)):
            _log.warning("the model process stops before its web workers")
        self._loader.close(max(give_up_at - time.monotonic(), 0))
        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(
                self._loop.call_later, _LAST_REPLIES_S, self._loop.stop
            )
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:  # too many open files
            _log.error("no connection can be accepted: %s", error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_ACCEPT_RETRY_S, self._listen)
            return
        worker = WorkerConnection(
            sock=sock,
            catalog=self._catalog,
            loader=self._loader,
            rows=self._rows,
            wake=self._wake,
            send_timeout_s=self._send_timeout_s,
        )
        worker.connection.start(self._loop)

    def _wake(self, jobs: Sequence[Job]) -> None:
        """Have the event loop send the replies of answered jobs."""
        self._rows.add(-sum([job.rows for job in jobs]))
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(_send_replies, jobs)


class _WorkerJob(Job):
    """A web worker's job, with the number of the call."""

    number: int
    worker: "WorkerConnection"


def _send_replies(jobs: Sequence[Any]) -> None:
    for job in jobs:
        job.worker.reply(job)


class WorkerConnection:
    """Submits a web worker's jobs to the runners, and sends their replies."""

    def __init__(
        self,
        *,
        sock: socket.socket,
        catalog: PublishedCatalog,
        loader: Loader,
        rows: RowCount,
        wake: Wake,
        send_timeout_s: float,
    ) -> None:
        """Store the parts; `wake` has the event loop call `reply`."""
        self.connection = Connection(sock, self._take, self._closed, send_timeout_s)
        self._sock = sock
        self._catalog = catalog
        self._rows = rows
        self._wake = wake
        self._operations: dict[str, Callable[[Any, float], None]] = {
            "load": loader.load,
            "unload": loader.unload,
            "traffic": lambda split, timeout_s: loader.set_traffic(
                split[0], split[1], timeout_s
            ),
        }
        # By their numbers; a job that is missing here was canceled.
        self._jobs: dict[int, _WorkerJob] = {}

    def send(self, meta: Mapping[str, Any]) -> None:
        """Send a message without tensors; any thread may call this."""
        self.connection.send(encode(Frame(meta)))

    def reply(self, job: _WorkerJob) -> None:
        """Send the reply of an answered job, unless it was canceled."""
        if self._jobs.pop(job.number, None) is not None:
            self.connection.send(encode_reply(job))

    def _closed(self) -> None:
        self._catalog.unsubscribe(self)
        for number in list(self._jobs):
            self._cancel(number)

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            try:
                self._take_message(frame)
            except Exception as error:
                self._refuse(frame.meta, error)

    def _take_message(self, frame: Frame) -> None:
        meta = frame.meta
        if "predict" in meta:
            self._predict(frame)
        elif "cancel" in meta:
            for number in meta["cancel"]:
                self._cancel(number)
        elif "acknowledge" in meta:
            self._catalog.acknowledge(self, meta["acknowledge"])
        elif "subscribe" in meta:
            socket.send_fds(self._sock, [b"."], [self._rows.fd])
            self._catalog.subscribe(self)
        else:
            (operation,) = self._operations.keys() & meta.keys()
            # It may take minutes.
            _start_thread("operation", self._operate, operation, meta)

    def _predict(self, frame: Frame) -> None:
        meta = frame.meta
        name, version = meta["predict"]
        served = self._catalog.find(name, version)
        if served is None:
            raise NotReady(f"model {name!r}: version {version} is not here")
        number = meta["number"]
        job = _WorkerJob(
            inputs=frame.tensors,
            deadline=meta["deadline"],
            signature_name=meta["signature"],
            client=meta["client"],
        )
        job.reserve_s = meta["reserve_s"]
        job.number = number
        job.worker = self
        job.wake = self._wake
        job.traceparent = meta["traceparent"]
        self._jobs[number] = job
        self._rows.add(job.rows)
        try:
            if served.runner.runs_in_submit:
                _start_thread("job", self._submit, served.runner, job, meta)
            else:
                served.runner.submit(job)
        except Exception:
            self._forget(job)
            raise

    def _submit(self, runner: Runner, job: _WorkerJob, meta: Mapping[str, Any]) -> None:
        try:
            runner.submit(job)
        except Exception as error:
            self._forget(job)
            self._refuse(meta, error)

    def _cancel(self, number: int) -> None:
        job = self._jobs.pop(number, None)
        if job is not None:
            job.abandon()

    def _forget(self, job: _WorkerJob) -> None:
        self._rows.add(-job.rows)
        self._jobs.pop(job.number, None)

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
        answer = {"number": meta.get("number"), "refused": True}
        self.send(answer | _error_to_json(error))


def encode_reply(job: _WorkerJob) -> list[Buffer]:
    """Return the encoded reply of an answered job."""
    number = {"number": job.number}
    try:
        outputs = job.result()
        meta = {
            **number,
            "batch_rows": job.batch_rows,
            "times": (job.started_at, job.finished_at),
        }
        return encode(Frame(meta, outputs))
    except Exception as error:
        return encode(Frame({**number, **_error_to_json(error)}))


def _error_to_json(error: Exception) -> dict[str, Any]:
    if not isinstance(error, BasketError):
        _log.error("a job of a web worker failed", exc_info=error)
    return error_to_json(error)


def _start_thread(name: str, work: Callable[..., None], *args: object) -> None:
    threading.Thread(target=work, name=name, args=args, daemon=True).start()
