"""The model process: takes web workers' jobs from a socket to its own runners."""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from app.serving.health import Health
from app.serving.loader import Loader
from app.shared_model.connection import Connection
from app.shared_model.load import Load
from app.shared_model.published import PublishedCatalog
from app.shared_model.web_worker import Order, WebWorker

_log = logging.getLogger(__name__)
# What a stop leaves for models to be closed, seconds.
_CLOSE_S = 0.2
# Before the next try, where no connection can be taken.
_RETRY_S = 0.1


class ModelProcess:
    """Serves one listening socket: a WebWorker for each connection."""

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
        orders: dict[str, Order] = {"load": self._load_model, "unload": self._unload}
        WebWorker(Connection(sock), self._catalog, self._load, orders).serve()

    def _load_model(self, meta: Mapping[str, Any]) -> None:
        timeout_s = float(meta["timeout_s"])
        self._loader.load(meta["load"], timeout_s)
        self._catalog.wait_until_seen(timeout_s)

    def _unload(self, meta: Mapping[str, Any]) -> None:
        timeout_s = float(meta["timeout_s"])
        self._loader.unload(meta["unload"], timeout_s)
        self._catalog.wait_until_seen(timeout_s)
