"""Model workers: Gunicorn workers that hold models and serve no HTTP.

The arbiter starts, supervises, reloads and stops them like any worker. Gunicorn's own
dirty workers do not fit: their arbiter stops them together with the web workers, a
reload stops the new ones and keeps the old ones, and a second server of the same name
stops those of the first.
"""

import os
import select
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gunicorn.workers.base import Worker

_HEARTBEAT_S = 0.25
# The shutdown ends so many seconds before the arbiter kills the worker.
_SHUTDOWN_MARGIN_S = 0.3
_READ_BYTES = 4096


class ModelWorker(Worker):
    """A Gunicorn worker that runs one `ModelProcess`."""

    def __init__(self, sockets: "ModelSockets", slot: int, *args: Any) -> None:
        """Store the model sockets; the worker listens on the one of its slot."""
        super().__init__(*args)
        self.model_sockets = sockets
        self.slot = slot
        self._web_listeners, self.sockets = self.sockets, []
        # At TTOU and at reload, the arbiter stops the worker with the lowest age.
        self.age = sys.maxsize

    def load_wsgi(self) -> None:
        """Start the model process instead of an application."""
        for listener in self._web_listeners:
            listener.close()
        sockets = self.model_sockets
        self._process = sockets.build(sockets.listeners[self.slot])
        self._process.start()

    def run(self) -> None:
        """Send heartbeats until the worker is stopped or its parent has died."""
        while self.alive and os.getppid() == self.ppid:
            self.notify()
            self._process.tick()
            if self._process.hangs():
                self.log.critical("a model hangs: the model process ends itself")
                # An engine's call can't be interrupted in any other way.
                os._exit(1)
            select.select([self.PIPE[0]], [], [], _HEARTBEAT_S)
            with suppress(BlockingIOError):
                os.read(self.PIPE[0], _READ_BYTES)
        timeout_s = max(self.cfg.graceful_timeout - _SHUTDOWN_MARGIN_S, 0)
        closing = threading.Thread(target=self._process.close, args=(timeout_s,))
        closing.start()
        while closing.is_alive():
            self.notify()
            closing.join(_HEARTBEAT_S)
        if os.getppid() != self.ppid:
            # The master, which removes the sockets else, is dead.
            self.model_sockets.close()


class ModelSockets:
    """The listening sockets of model processes, which the master keeps open.

    Web workers can connect while a model process restarts; it serves them later.
    """

    def __init__(self, build: Callable[[socket.socket], Any]) -> None:
        """Store the function that makes a `ModelProcess` for a listening socket."""
        self.build = build
        self._folder = Path()
        self.listeners: list[socket.socket] = []

    def open(self, run_dir: str, processes: int) -> list[str]:
        """Open a listening socket for each model process, and return their paths.

        Raises:
            OSError: a path is longer than the kernel allows.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="model-", dir=run_dir))
        paths = [str(self._folder / str(slot)) for slot in range(processes)]
        for path in paths:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(socket.SOMAXCONN)
            self.listeners.append(listener)
        return paths

    def close_inherited(self) -> None:
        """Close the sockets that a web worker has inherited from the master."""
        for listener in self.listeners:
            listener.close()

    def close(self) -> None:
        """Remove the sockets; may be called twice."""
        self.close_inherited()
        shutil.rmtree(self._folder, ignore_errors=True)
