"""Model processes as Gunicorn workers that answer no HTTP.

So the arbiter starts them, watches their heartbeat, starts them again, reloads and
stops them as it does with any worker. Gunicorn's own dirty workers were tried first:
their arbiter stops them together with the web workers, a reload ends the new ones and
keeps the old, and a second server of the same name ends those of the first.
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
from typing import Any, Protocol

from gunicorn.workers.base import Worker

# Seconds from one heartbeat to the next.
_TICK_S = 0.25
# Seconds by which a stop ends before the arbiter kills; web workers end before that.
_EARLY_S = 0.3
_READ_BYTES = 4096


class Process(Protocol):
    """What a model worker runs; `shared_model.process` has it."""

    def start(self) -> None:
        """Begin to load models and to take jobs."""
        ...

    def tick(self) -> None:
        """Do what is to be done several times a second."""
        ...

    def hangs(self) -> bool:
        """Return whether nothing but an end of the process helps."""
        ...

    def close(self, timeout_s: float) -> None:
        """Serve on until all web workers are gone, then end."""
        ...


class ModelWorker(Worker):
    """A worker of Gunicorn's arbiter that holds the models."""

    def __init__(self, sockets: "ModelSockets", slot: int, *args: Any) -> None:
        """Store the model sockets, and which of them this worker serves."""
        super().__init__(*args)
        self.model_sockets = sockets
        self.slot = slot
        self._web_listeners, self.sockets = self.sockets, []
        # Never the oldest: the arbiter ends the oldest when there are too many.
        self.age = sys.maxsize

    def load_wsgi(self) -> None:
        """Load models, and no application."""
        for listener in self._web_listeners:
            listener.close()
        sockets = self.model_sockets
        self._process = sockets.build(sockets.listeners[self.slot])
        self._process.start()

    def run(self) -> None:
        """Show a heartbeat for as long as there is progress and a parent."""
        while self.alive and os.getppid() == self.ppid:
            self.notify()
            self._process.tick()
            if self._process.hangs():
                self.log.critical("a model hangs: the model process ends itself")
                # Nothing that runs in an engine can be ended in another way.
                os._exit(1)
            select.select([self.PIPE[0]], [], [], _TICK_S)
            with suppress(BlockingIOError):
                os.read(self.PIPE[0], _READ_BYTES)
        timeout_s = max(self.cfg.graceful_timeout - _EARLY_S, 0)
        closing = threading.Thread(target=self._process.close, args=(timeout_s,))
        closing.start()
        while closing.is_alive():
            self.notify()
            closing.join(_TICK_S)
        if os.getppid() != self.ppid:
            # There is nobody else to do it.
            self.model_sockets.close()


class ModelSockets:
    """The listening sockets of model processes, which the master holds.

    So a web worker can always connect, and is served as soon as a new model process
    is there.
    """

    def __init__(self, build: Callable[[socket.socket], Process]) -> None:
        """Store what makes a model process for a listening socket."""
        self.build = build
        self._folder = Path()
        self.listeners: list[socket.socket] = []

    def open(self, run_dir: str, processes: int) -> list[str]:
        """Open a listening socket for each model process; return their paths.

        Raises:
            OSError: the path is longer than the kernel takes.
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
        """In a web worker: close what it has only inherited."""
        for listener in self.listeners:
            listener.close()

    def close(self) -> None:
        """Remove the sockets; may be called twice."""
        self.close_inherited()
        shutil.rmtree(self._folder, ignore_errors=True)
