"""The undocumented names of Gunicorn's arbiter that Basket uses, all in this module.

Gunicorn documents hooks that get the arbiter, but hardly anything of the arbiter
itself. Three features need more than a hook:

- a HUP keeps the old workers until the new ones listen (`keep_old_workers`),
- model processes run among the workers (`WorkerPool`),
- a GPU is chosen by what the living workers use (`living_workers`).

tests/unit/rims/test_gunicorn_private.py lists each undocumented name, and compares it
with the installed Gunicorn.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from gunicorn.workers.base import Worker

from app.rims.model_worker import ModelSockets, ModelWorker

_LOOK_EVERY_S = 0.1


def living_workers(server: Any) -> list[Any]:
    """Return the arbiter's workers."""
    return list(server.WORKERS.values())


def is_reexecuted(server: Any) -> bool:
    """Return whether a USR2 made this arbiter, and the old one still lives."""
    return bool(server.master_pid != 0)


def keep_start_environment(server: Any) -> None:
    """Store the environment of the start, for `restore_start_environment`.

    A HUP stores the environment again, with variables that hooks have set since. The
    arbiter that a USR2 starts must not inherit these.
    """
    server.basket_environ_at_start = server.cfg.env_orig


def restore_start_environment(server: Any) -> None:
    """Make a USR2 after a HUP start with the environment of the start."""
    server.cfg.env_orig = server.basket_environ_at_start


def listening_hosts(worker: Any) -> list[str]:
    """Return the hosts of a worker's addresses; a Unix socket has none."""
    return [host for host, _ in _tcp_addresses(worker)]


def browser_address(worker: Any) -> str:
    """Return where a browser on this machine finds the server; "" for Unix sockets.

    All addresses of the machine are shown as its loopback address.
    """
    addresses = _tcp_addresses(worker)
    if not addresses:
        return ""
    host, port = addresses[0]
    if host in ("0.0.0.0", "::"):  # noqa: S104
        host = "::1" if ":" in host else "127.0.0.1"
    scheme = "https" if worker.cfg.certfile else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _tcp_addresses(worker: Any) -> list[tuple[str, int]]:
    addresses = [each.getsockname() for each in worker.sockets]
    return [each[:2] for each in addresses if isinstance(each, tuple)]


def show_listening(worker: Any) -> None:
    """Notify the arbiter that this worker is about to listen.

    Both have the worker's heartbeat file. Gunicorn uses only its time, so its size is
    free for this.
    """
    os.ftruncate(worker.tmp.fileno(), 1)


def started_workers(server: Any) -> int:
    """Return how many workers, and model processes, the server has started so far."""
    return int(server.worker_age)


def keep_old_workers(server: Any) -> None:
    """Make a HUP keep the old workers until all new workers listen.

    Gunicorn ends the old workers as soon as it has forked the new ones, which still
    load their models then, and calls no hook in between. The death of a new worker
    ends the wait, and so does a signal.
    """
    youngest = server.worker_age

    def manage_workers() -> None:
        del server.manage_workers
        new = [each for each in living_workers(server) if each.age > youngest]
        while _are_starting(new) and not _has_signal(server.SIG_QUEUE):
            server.murder_workers()
            time.sleep(_LOOK_EVERY_S)
        server.manage_workers()

    server.manage_workers = manage_workers


def _has_signal(waiting: "SimpleQueue[int]") -> bool:
    """Return whether a signal other than SIGCHLD waits; leave all in the queue."""
    numbers = [waiting.get() for _ in range(waiting.qsize())]
    for number in numbers:
        waiting.put(number)
    return any(number != signal.SIGCHLD for number in numbers)


def _are_starting(workers: Sequence[Any]) -> bool:
    """Return whether all workers live, and a web worker does not listen yet."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return all(os.waitid(os.P_PID, each.pid, how) is None for each in workers) and any(
        os.fstat(each.tmp.fileno()).st_size == 0
        for each in workers
        if not isinstance(each, ModelWorker)
    )


class WorkerPool:
    """Takes the place of the arbiter's worker class, and makes model workers, too.

    The arbiter starts, watches and replaces the workers that its one worker class
    makes. This makes a model worker if one is missing, and else a web worker.
    """

    def __init__(self, server: Any, sockets: ModelSockets, processes: int) -> None:
        """Store the parts, and the number of model processes."""
        self._server = server
        self._web_class: Callable[..., Worker] = server.worker_class
        self.sockets = sockets
        self._processes = processes

    def install(self) -> None:
        """Make the arbiter keep model workers beside its web workers."""
        server = self._server
        # Model workers from before a reload are replaced first.
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
    """Return the arbiter's pool, or None if it has web workers only."""
    pool = server.worker_class
    return pool if isinstance(pool, WorkerPool) else None


def close_sockets_of(server: Any, dead: Any) -> None:
    """Remove the sockets of the last model worker from before a reload."""
    pool = installed_pool(server)
    sockets = dead.model_sockets
    others = [getattr(each, "model_sockets", None) for each in living_workers(server)]
    if sockets not in others and (pool is None or sockets is not pool.sockets):
        sockets.close()


def _handle_ttou(server: Any, least: int) -> None:
    """Stop a web worker, but keep one; Gunicorn counts model workers as well."""
    if server.num_workers > least:
        type(server).handle_ttou(server)
