"""The model process, which runs the jobs of all web workers."""

import asyncio
import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import uvloop

from app import memory
from app.batching.job import Job
from app.errors import NotReady
from app.repository.health import Health
from app.repository.loader import Loader
from app.shared_model.connection import FrameConnection
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
        self.catalog = catalog
        self.loader = loader
        self._listener = listener
        self._health = health
        self.send_timeout_s = send_timeout_s
        self.rows = RowCount()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(
            target=self._run, name="model process", daemon=True
        )

    def start(self) -> None:
        """Start to load models and to accept connections."""
        memory.freeze()
        self.loader.start()
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
        if not self.catalog.wait_until_unsubscribed(max(timeout_s - _CLOSE_S, 0)):
            _log.warning("the model process stops before its web workers")
        self.loader.close(max(give_up_at - time.monotonic(), 0))
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
        WorkerConnection(self, sock).connection.start(self._loop)

    def wake(self, jobs: Sequence[Job]) -> None:
        """Have the event loop send the replies of answered jobs, as Job.wake."""
        self.rows.add(-sum([job.rows for job in jobs]))
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(_send_replies, jobs)


class _WorkerJob(Job):
    """A web worker's job, with the number of the call."""

    number: int
    owner: "WorkerConnection"


def _send_replies(jobs: Sequence[Any]) -> None:
    """Send the replies of answered jobs, with one write for each web worker."""
    replies: defaultdict[WorkerConnection, list[Buffer]] = defaultdict(list)
    for job in jobs:
        replies[job.owner] += job.owner.encoded_reply(job)
    for worker, buffers in replies.items():
        worker.connection.send(buffers)


class WorkerConnection:
    """Submits a web worker's jobs to the runners, and sends their replies."""

    def __init__(self, process: ModelProcess, sock: socket.socket) -> None:
        """Store the parts."""
        self.connection = FrameConnection(
            sock, self._take, self._closed, process.send_timeout_s
        )
        self._process = process
        self._sock = sock
        # By their numbers.
        self._jobs: dict[int, _WorkerJob] = {}

    def send(self, meta: Mapping[str, Any]) -> None:
        """Send a message without tensors; any thread may call this."""
        self.connection.send(encode(Frame(meta)))

    def encoded_reply(self, job: _WorkerJob) -> list[Buffer]:
        """Return the encoded reply of an answered job; nothing if it was canceled."""
        if self._jobs.pop(job.number, None) is not job or job.is_abandoned:
            return []
        number = {"number": job.number}
        try:
            outputs = job.result()
            meta = {
                "batch_rows": job.batch_rows,
                "times": (job.started_at, job.finished_at),
            }
            return encode(Frame(number | meta, outputs))
        except Exception as error:
            return encode(Frame(number | error_to_json(error)))

    def _closed(self) -> None:
        self._process.catalog.unsubscribe(self.send)
        for job in list(self._jobs.values()):
            job.abandon()

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._refuse_at_error(frame.meta, self._take_message, frame)

    def _refuse_at_error(
        self, meta: Mapping[str, Any], work: Callable[..., None], *arguments: object
    ) -> None:
        """Call a function; if it raises, refuse the call that has these values."""
        try:
            work(*arguments)
        except Exception as error:
            number = meta.get("number", 0)
            job = self._jobs.pop(number, None)
            if job is not None:
                self._process.rows.add(-job.rows)
            self.send({"number": number, "refused": True} | error_to_json(error))

    def _take_message(self, frame: Frame) -> None:
        meta = frame.meta
        if "predict" in meta:
            self._predict(frame)
        elif "cancel" in meta:
            for number in meta["cancel"]:
                if number in self._jobs:
                    self._jobs[number].abandon()
        elif "acknowledge" in meta:
            self._process.catalog.acknowledge(self.send, meta["acknowledge"])
        elif "subscribe" in meta:
            socket.send_fds(self._sock, [b"."], [self._process.rows.fd])
            self._process.catalog.subscribe(self.send)
        else:
            # It may take minutes.
            self._start_thread(meta, self._operate, meta)

    def _predict(self, frame: Frame) -> None:
        meta = frame.meta
        name, version = meta["predict"]
        served = self._process.catalog.find(name, version)
        if served is None:
            raise NotReady(f"model {name!r}: version {version} is not here")
        job = _WorkerJob(
            inputs=frame.tensors,
            deadline=meta["deadline"],
            signature_name=meta["signature"],
            client=meta["client"],
        )
        job.reserve_s = meta["reserve_s"]
        job.traceparent = meta["traceparent"]
        job.number = meta["number"]
        job.owner = self
        job.wake = self._process.wake
        self._jobs[job.number] = job
        self._process.rows.add(job.rows)
        if served.runner.runs_in_submit:
            self._start_thread(meta, served.runner.submit, job)
        else:
            served.runner.submit(job)

    def _operate(self, meta: Mapping[str, Any]) -> None:
        loader = self._process.loader
        operations: dict[str, Callable[..., None]] = {
            "load": loader.load,
            "unload": loader.unload,
            "set_traffic": loader.set_traffic,
        }
        timeout_s = float(meta["timeout_s"])
        operations[meta["operation"]](*meta["arguments"], timeout_s)
        self._process.catalog.wait_until_acknowledged(timeout_s)
        self.send({"number": meta["number"]})

    def _start_thread(self, meta: Mapping[str, Any], *work: Any) -> None:
        threading.Thread(
            target=self._refuse_at_error, args=(meta, *work), name="job", daemon=True
        ).start()
