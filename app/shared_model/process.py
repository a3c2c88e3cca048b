"""The model process: takes web workers' jobs from a socket to its own runners."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.engines.base import Tensors
from app.errors import BasketError, NotReady
from app.hang_up import HungUp
from app.serving.health import Health
from app.serving.job import Job
from app.serving.loader import Loader
from app.shared_model import failures
from app.shared_model.load import Load
from app.shared_model.published import PublishedCatalog
from app.shared_model.wire import Connection, Frame, WireError

_log = logging.getLogger(__name__)
# What a stop leaves for models to be closed, seconds.
_CLOSE_S = 0.2
# Before the next try, where no connection can be taken.
_RETRY_S = 0.1


class ModelProcess:
    """Serves one listening socket; each connection has a thread and one job at a time.

    A frame asks for one thing by its key: `watch`, `predict`, `load` or `unload`.
    """

    def __init__(
        self,
        catalog: PublishedCatalog,
        loader: Loader,
        listener: socket.socket,
        health: Health,
    ) -> None:
        """Store the parts; `loader` fills `catalog`."""
        self._catalog = catalog
        self._loader = loader
        self._listener = listener
        self._health = health
        self._load = Load()
        self._answers: dict[str, Callable[[Frame, HungUp], _Answer]] = {
            "predict": self._predict,
            "load": self._load_model,
            "unload": self._unload_model,
        }

    def start(self) -> None:
        """Begin to load models, and to take connections."""
        self._loader.start()
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def hangs(self) -> bool:
        """Say whether a model has stood still for longer than a request may take."""
        return bool(self._health.stuck_here())

    def close(self, timeout_s: float) -> None:
        """Serve the web workers until they have gone, then close the models."""
        give_up_at = time.monotonic() + timeout_s
        if not self._catalog.wait_until_unwatched(max(timeout_s - _CLOSE_S, 0)):
            _log.warning("the model process stops before its web workers")
        self._loader.close(max(give_up_at - time.monotonic(), 0))

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:  # too many open files
                _log.error("no connection can be taken: %s", error.strerror)
                time.sleep(_RETRY_S)
                continue
            threading.Thread(
                target=self._serve, args=(sock,), name="connection", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        # A web worker that dies ends the connection in the middle of anything.
        with sock, suppress(WireError, OSError):
            connection, is_gone = Connection(sock), HungUp(sock)
            while (frame := connection.receive()) is not None:
                if "watch" in frame.meta:
                    socket.send_fds(sock, [b"."], [self._load.fd])
                    self._catalog.watch(connection)
                    return
                self._answer(connection, frame, is_gone)
                # An idle connection holds no rows.
                del frame

    def _answer(self, connection: Connection, frame: Frame, is_gone: HungUp) -> None:
        try:
            (key,) = self._answers.keys() & frame.meta.keys()
            meta, outputs = self._answers[key](frame, is_gone)
            connection.send(meta, outputs)
        except OSError:
            raise
        except Exception as error:
            if not isinstance(error, BasketError):
                _log.exception("a job of a web worker failed")
            connection.send({**failures.describe(error), "refused": True})

    def _predict(self, frame: Frame, is_gone: HungUp) -> "_Answer":
        name, version = frame.meta["predict"]
        served = self._catalog.find(name, version)
        if served is None:
            raise NotReady(f"model {name!r}: version {version} is not here")
        job = Job(
            frame.tensors,
            frame.meta["deadline"],
            is_gone,
            frame.meta["signature"],
            frame.meta["client"],
            frame.meta["reserve_s"],
        )
        self._load.add(job.rows)
        try:
            served.runner.submit(job)
            return _answer_of(job)
        finally:
            self._load.add(-job.rows)

    def _load_model(self, frame: Frame, is_gone: HungUp) -> "_Answer":
        del is_gone
        timeout_s = float(frame.meta["timeout_s"])
        self._loader.load(frame.meta["load"], timeout_s)
        self._catalog.wait_until_seen(timeout_s)
        return {}, None

    def _unload_model(self, frame: Frame, is_gone: HungUp) -> "_Answer":
        del is_gone
        timeout_s = float(frame.meta["timeout_s"])
        self._loader.unload(frame.meta["unload"], timeout_s)
        self._catalog.wait_until_seen(timeout_s)
        return {}, None


def _answer_of(job: Job) -> "_Answer":
    try:
        answer = job.wait()
    except BasketError as error:
        return failures.describe(error), None
    started_at = job.enqueued_at + answer.queue_s
    times = (started_at, started_at + answer.infer_s)
    return {"batch_rows": answer.batch_rows, "times": times}, answer.outputs


_Answer = tuple[dict[str, Any], Tensors | None]
