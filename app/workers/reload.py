"""A HUP that no client waits for: workers of before it go when those after it listen.

Gunicorn ends the old ones as soon as it has forked the new ones, whose models are still
loading then.
"""

import os
import signal
import time
from collections.abc import Sequence
from queue import SimpleQueue
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

    The death of one of these ends the wait, and so does a signal, as one to stop.
    """
    youngest = server.worker_age

    def manage_workers() -> None:
        del server.manage_workers
        new = [each for each in server.WORKERS.values() if each.age > youngest]
        while _are_coming(new) and not _has_signal(server.SIG_QUEUE):
            server.murder_workers()
            time.sleep(_LOOK_EVERY_S)
        server.manage_workers()

    server.manage_workers = manage_workers


def _has_signal(waiting: "SimpleQueue[int]") -> bool:
    """Whether one waits that is of no worker's end; all are left there."""
    numbers = [waiting.get() for _ in range(waiting.qsize())]
    for number in numbers:
        waiting.put(number)
    return any(number != signal.SIGCHLD for number in numbers)


def _are_coming(workers: Sequence[Any]) -> bool:
    """Whether all of them live, and one for the web does not listen yet."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return all(os.waitid(os.P_PID, each.pid, how) is None for each in workers) and any(
        os.fstat(each.tmp.fileno()).st_size == 0
        for each in workers
        if not isinstance(each, ModelWorker)
    )
