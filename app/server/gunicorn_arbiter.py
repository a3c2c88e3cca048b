"""All that Basket needs of Gunicorn's arbiter, and that Gunicorn does not document.

Gunicorn documents hooks that get the arbiter, but next to nothing of the arbiter
itself. Three promises need more than a hook, each for the reason that its function or
class gives:

- a HUP keeps the old workers until the new ones listen (`keep_old_workers`),
- model processes run among the workers (`WorkerPool`),
- a GPU is chosen by what the living workers use (`living_workers`).

`NAMES` lists every undocumented name that is used here; a test holds it against the
Gunicorn that is installed.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from gunicorn.workers.base import Worker

from app.server.model_worker import ModelSockets, ModelWorker

# Attributes of the arbiter, of its class or of an instance; of a worker; of settings.
NAMES = {
    "arbiter": (
        *("SIG_QUEUE", "WORKERS", "handle_ttou", "manage_workers", "master_pid"),
        *("murder_workers", "num_workers", "worker_age", "worker_class"),
    ),
    "worker": ("age", "ppid", "tmp"),
    "cfg": ("env_orig", "worker_class_str"),
}
_LOOK_EVERY_S = 0.1


def living_workers(server: Any) -> list[Any]:
    """Return the workers that the arbiter has."""
    return list(server.WORKERS.values())


def is_reexecuted(server: Any) -> bool:
    """Return whether a USR2 made this arbiter, and the old one still lives."""
    return bool(server.master_pid != 0)


def keep_start_environment(server: Any) -> None:
    """Note the environment that the server was started with.

    A HUP reads the settings anew, and takes the environment for that of the start:
    by then it holds what hooks set, which is nothing for the arbiter that a USR2 makes.
    """
    server.basket_environ_at_start = server.cfg.env_orig


def restore_start_environment(server: Any) -> None:
    """Have a USR2 after a HUP begin with the environment of the start."""
    server.cfg.env_orig = server.basket_environ_at_start


def show_listening(worker: Any) -> None:
    """In a worker: tell the arbiter that it is about to listen.

    Both have the worker's heartbeat file, which is empty, and of which only the time
    counts.
    """
    os.ftruncate(worker.tmp.fileno(), 1)


def keep_old_workers(server: Any) -> None:
    """Have a HUP end no old worker before all that come next listen.

    Gunicorn ends the old ones as soon as it has forked the new ones, whose models are
    still loading then. No hook is called between the two. The death of one of the new
    ones ends the wait, and so does a signal.
    """
    youngest = server.worker_age

    def manage_workers() -> None:
        del server.manage_workers
        new = [each for each in living_workers(server) if each.age > youngest]
        while _are_coming(new) and not _has_signal(server.SIG_QUEUE):
            server.murder_workers()
            time.sleep(_LOOK_EVERY_S)
        server.manage_workers()

    server.manage_workers = manage_workers


def _has_signal(waiting: "SimpleQueue[int]") -> bool:
    """Return whether one waits that is not of a worker's end; leave all there."""
    numbers = [waiting.get() for _ in range(waiting.qsize())]
    for number in numbers:
        waiting.put(number)
    return any(number != signal.SIGCHLD for number in numbers)


def _are_coming(workers: Sequence[Any]) -> bool:
    """Return whether all of them live, and a web worker does not listen yet."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return all(os.waitid(os.P_PID, each.pid, how) is None for each in workers) and any(
        os.fstat(each.tmp.fileno()).st_size == 0
        for each in workers
        if not isinstance(each, ModelWorker)
    )


class WorkerPool:
    """Stands where the arbiter has its worker class, and makes model workers, too.

    The arbiter starts, watches and replaces whatever its worker class makes. It knows
    one class and one number, so this makes a model worker where one is missing, and
    else a web worker.
    """

    def __init__(self, server: Any, sockets: ModelSockets, processes: int) -> None:
        """Store the parts; so many model processes are kept."""
        self._server = server
        self._web_class: Callable[..., Worker] = server.worker_class
        self.sockets = sockets
        self._processes = processes

    def install(self) -> None:
        """Have the arbiter keep the model workers beside its web workers."""
        server = self._server
        # Those of before a reload go first.
        for worker in living_workers(server):
            if isinstance(worker, ModelWorker):
                worker.age = 0
        server.worker_class = self
        server.cfg.set("workers", server.cfg.workers + self._processes)
        server.num_workers = server.cfg.workers
        server.handle_ttou = partial(_handle_ttou, server, self._processes + 1)

    def __call__(self, age: int, *args: Any) -> Worker:
        """Make the next worker."""
        taken = {
            worker.slot
            for worker in living_workers(self._server)
            if isinstance(worker, ModelWorker) and worker.model_sockets is self.sockets
        }
        for slot in range(self._processes):
            if slot not in taken:
                return ModelWorker(self.sockets, slot, age, *args)
        return self._web_class(age, *args)


def installed_pool(server: Any) -> WorkerPool | None:
    """Return the arbiter's pool; None: it has web workers alone."""
    pool = server.worker_class
    return pool if isinstance(pool, WorkerPool) else None


def close_sockets_of(server: Any, dead: Any) -> None:
    """Remove a dead model worker's sockets, if it was the last of before a reload."""
    pool = installed_pool(server)
    sockets = dead.model_sockets
    others = [getattr(each, "model_sockets", None) for each in living_workers(server)]
    if sockets not in others and (pool is None or sockets is not pool.sockets):
        sockets.close()


def _handle_ttou(server: Any, least: int) -> None:
    """Have one web worker less, down to one; Gunicorn counts model workers as such."""
    if server.num_workers > least:
        type(server).handle_ttou(server)
