"""The model process: takes web workers' jobs from a socket to its own runners."""

import logging
import queue
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from app.repository.health import Health
from app.repository.loader import Loader
from app.shared_model.connection import Connection
from app.shared_model.load import Load
from app.shared_model.published import PublishedCatalog
from app.shared_model.web_worker import Said, WebWorker

_log = logging.getLogger(__name__)
# What a stop leaves for models to be closed, seconds.
_CLOSE_S = 0.2
# Before the next try, where no connection can be taken.
_RETRY_S = 0.1


class ModelProcess:
    """Serves one listening socket: a WebWorker for each connection.

    Each has a thread that receives; one thread encodes and sends for all, so that a
    batch wakes one thread and not one for each web worker.
    """

    def __init__(
        self,
        catalog: PublishedCatalog,
        loader: Loader,
        listener: socket.socket,
        health: Health,
        flush_metrics: Callable[[], None] = lambda: None,
    ) -> None:
        """Store the parts; `loader` fills `catalog`."""
        self._flush_metrics = flush_metrics
        self._catalog = catalog
        self._loader = loader
        self._listener = listener
        self._health = health
        self._load = Load()
        self._unsaid: queue.SimpleQueue[tuple[WebWorker, Said]] = queue.SimpleQueue()

    def start(self) -> None:
        """Begin to load models, and to take connections."""
        self._loader.start()
        for work, name in ((self._accept, "accept"), (self._send, "send")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def tick(self) -> None:
        """Write what is counted; to be called several times a second."""
        self._flush_metrics()

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
                self._serve(Connection(sock))
            except OSError as error:  # too many open files, or threads
                _log.error("no connection can be taken: %s", error)
                time.sleep(_RETRY_S)

    def _serve(self, connection: Connection) -> None:
        parts = self._catalog, self._loader, self._load, self._say
        worker = WebWorker(connection, *parts)
        try:
            connection.start_thread(worker.serve, "connection")
        except OSError:
            connection.close()
            raise

    def _say(self, worker: WebWorker, said: Said) -> None:
        self._unsaid.put((worker, said))

    def _send(self) -> None:
        """Have web workers told what there is to say, all of it to each at once."""
        unsaid = self._unsaid
        while True:
            by_worker: defaultdict[WebWorker, list[Said]] = defaultdict(list)
            worker, said = unsaid.get()
            by_worker[worker].append(said)
            while not unsaid.empty():
                worker, said = unsaid.get()
                by_worker[worker].append(said)
            for worker, whole in by_worker.items():
                worker.send(whole)
            self._flush_metrics()
            # An idle process holds no rows.
            del worker, said, by_worker, whole
