"""A HUP that no client waits for: workers of before it go when those after it listen.

Gunicorn ends the old ones as soon as it has forked the new ones, whose models are still
loading then.
"""

import os
import time
from typing import Any

from gunicorn.workers.base import Worker

from app.workers.model import ModelWorker

_LOOK_EVERY_S = 0.1


def show_listening(worker: Worker) -> None:
    """In a worker: tell the master that it is about to listen."""
    # Both have its heartbeat file, which is empty, and of which only the time counts.
    os.ftruncate(worker.tmp.fileno(), 1)


def keep_old_workers(server: Any) -> None:
    """In the master: have it end no worker before all that it makes next listen.

    Any signal ends the wait: one to stop, or that of a new worker's death.
    """
    youngest = server.worker_age

    def manage_workers() -> None:
        del server.manage_workers
        while server.SIG_QUEUE.empty() and _some_load(server, youngest):
            server.murder_workers()
            time.sleep(_LOOK_EVERY_S)
        server.manage_workers()

    server.manage_workers = manage_workers


def _some_load(server: Any, youngest: int) -> bool:
    return any(
        worker.age > youngest and os.fstat(worker.tmp.fileno()).st_size == 0
        for worker in server.WORKERS.values()
        if not isinstance(worker, ModelWorker)
    )
