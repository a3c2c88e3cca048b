"""The model process, which runs the jobs of all web workers."""

import logging
import queue
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from app import memory
from app.repository.health import Health
from app.repository.loader import Loader
from app.shared_model.connection import Connection
from app.shared_model.published_catalog import PublishedCatalog
from app.shared_model.row_count import RowCount
from app.shared_model.worker_connection import Message, WorkerConnection

_log = logging.getLogger(__name__)
# Seconds of a shutdown that are reserved for closing the models.
_CLOSE_S = 0.2
_ACCEPT_RETRY_S = 0.1


class ModelProcess:
    """Serves one listening socket, with a WorkerConnection for each web worker.

    Each connection has a thread that receives. One thread encodes and sends for all,
    so that a batch wakes one thread, whatever the number of web workers.
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
        self._rows = RowCount()
        self._unsent: queue.SimpleQueue[tuple[WorkerConnection, Message]] = (
            queue.SimpleQueue()
        )

    def start(self) -> None:
        """Start to load models and to accept connections."""
        memory.freeze()
        self._loader.start()
        for work, name in ((self._accept, "accept"), (self._send, "send")):
            threading.Thread(target=work, name=name, daemon=True).start()

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

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                sock, _ = self._listener.accept()
                self._serve(Connection(sock))
            except OSError as error:  # too many open files, or threads
                _log.error("no connection can be accepted: %s", error)
                time.sleep(_ACCEPT_RETRY_S)

    def _serve(self, connection: Connection) -> None:
        parts = self._catalog, self._loader, self._rows
        worker = WorkerConnection(connection, *parts, self._enqueue)
        try:
            connection.start_thread(worker.serve, "connection")
        except OSError:
            connection.close()
            raise

    def _enqueue(self, worker: WorkerConnection, message: Message) -> None:
        self._unsent.put((worker, message))

    def _send(self) -> None:
        """Send all messages that wait, with one write to each web worker."""
        unsent = self._unsent
        while True:
            by_worker: defaultdict[WorkerConnection, list[Message]] = defaultdict(list)
            worker, message = unsent.get()
            by_worker[worker].append(message)
            while not unsent.empty():
                worker, message = unsent.get()
                by_worker[worker].append(message)
            for worker, messages in by_worker.items():
                worker.write(messages)
            self._flush_metrics()
            # While the thread waits, it must not keep rows in memory.
            del worker, message, by_worker, messages
