"""Gunicorn's side of Basket: checks, metrics files, GPUs, and an orderly stop.

Threads, workers and address are left to the command line and to Gunicorn's own
defaults: `gunicorn wsgi:app` is one sync worker, `--threads=20` lets batches form.
"""

import logging
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from app import gpus
from app.errors import SettingsError
from app.settings import Settings, unknown_variables

# No framework survives a fork, so the model loads in the worker.
preload_app = False
# Seconds. Clients that think between requests keep their connection.
keepalive = 75
# Seconds that requests may take to finish at a stop; the last of them is kept for
# answering 503 to those that can't.
graceful_timeout = 30
# Its default path is one for all servers of a user, and nothing here needs it.
control_socket_disable = True

_METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
_OWN_METRICS_DIR = "basket-metrics-"


def on_starting(server):
    """Refuse settings that can't be, then make room for the workers' metrics."""
    try:
        settings = Settings.from_environment()
        if server.cfg.preload_app:
            raise SettingsError("--preload: a model does not survive the fork")
        used = gpus.choose(settings.gpus, gpus.total_memory_mib())
        gpus.check_shares(server.cfg.workers, used, settings.gpu_memory_fraction)
    except SettingsError as error:
        sys.exit(f"Basket does not start: {error}")
    for line in _advice(settings, used, server.cfg.threads):
        server.log.info(line)
    for line in unknown_variables():
        server.log.warning(line)
    _prepare_metrics_dir(reexecuted=server.master_pid != 0)


def pre_fork(server, worker):
    """Choose the worker's GPU while the living workers can be counted."""
    wanted = Settings.from_environment().gpus
    used = gpus.choose(wanted, gpus.total_memory_mib())
    living = server.WORKERS.values()
    worker.gpu = gpus.least_used(used, [w.gpu for w in living]) if used else None
    worker.has_siblings = bool(living)


def post_fork(server, worker):
    """Show the worker its GPU, and its log, before the application is imported."""
    if worker.gpu is not None:
        gpus.pin(worker.gpu)
        server.log.info("worker %s uses GPU %s", worker.pid, worker.gpu)
    log = logging.getLogger("app")
    log.handlers = server.log.error_log.handlers
    log.setLevel(server.log.error_log.level)


def post_worker_init(worker):
    """Watch for the stop; beside other workers, load before taking requests."""
    loader = worker.wsgi.extensions["basket"]
    worker.stops = queue.SimpleQueue()
    gunicorns_own = signal.getsignal(signal.SIGTERM)

    def stop(number, frame):
        # A SimpleQueue is safe in a signal handler; starting a thread here is not.
        worker.stops.put(number)
        gunicorns_own(number, frame)
        if hasattr(worker, "method_queue"):
            worker.method_queue.defer(_close_listeners, worker)

    threading.Thread(
        target=_wind_down, args=(worker, loader), name="wind-down", daemon=True
    ).start()
    signal.signal(signal.SIGTERM, stop)
    # A worker that takes the place of another would answer "not ready" to requests
    # that its siblings can serve. An only worker has to say so itself.
    while worker.has_siblings and worker.alive and not loader.wait(timeout_s=1):
        worker.notify()


def post_request(worker, request, environ, response):
    """See the end that --max-requests brings, of which no signal tells."""
    if not worker.alive:
        worker.stops.put(None)


def _wind_down(worker, loader):
    """Once the worker stops: free it of idle clients, then of those out of time."""
    worker.stops.get()
    give_up_at = time.monotonic() + worker.cfg.graceful_timeout - 1
    while time.monotonic() < give_up_at:
        _release_idle_connections(worker)
        time.sleep(0.5)
    loader.close(timeout_s=0)


def _close_listeners(worker):
    """Have a gthread worker take in whoever has connected, and nobody after that.

    Clients in the kernel's backlog may have sent their request already; left there
    they would be reset, and later ones would hang until the worker ends.
    """
    worker.set_accept_enabled(False)
    for listener in worker.sockets:
        before = -1
        while before != worker.nr_conns:
            before = worker.nr_conns
            worker.accept(listener)
        listener.close()


def _release_idle_connections(worker):
    """Have a gthread worker close connections that carried nothing for a second.

    It would otherwise wait for them until the graceful timeout, and with
    --max-requests no other worker takes its place meanwhile. A connection in use is
    told to close with its next answer, by Gunicorn itself.
    """

    def expire():
        idle_since = time.monotonic() - 1
        for connection in worker.keepalived_conns:
            if connection.timeout - worker.cfg.keepalive < idle_since:
                connection.timeout = 0

    if hasattr(worker, "keepalived_conns") and worker.poller.get_map() is not None:
        worker.method_queue.defer(expire)


def child_exit(server, worker):
    """Take a dead worker's gauges out of the sums; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)


def on_exit(server):
    """Remove the metrics files, unless they belong to somebody else."""
    folder = Path(os.environ.get(_METRICS_DIR, ""))
    if folder.name.startswith(_OWN_METRICS_DIR) and not server.reexec_pid:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare_metrics_dir(*, reexecuted):
    """Set and empty the folder; a re-executed master shares it with the old one."""
    if _METRICS_DIR not in os.environ:
        os.environ[_METRICS_DIR] = tempfile.mkdtemp(prefix=_OWN_METRICS_DIR)
    folder = Path(os.environ[_METRICS_DIR])
    folder.mkdir(parents=True, exist_ok=True)
    if not reexecuted:
        for file in folder.glob("*.db"):
            file.unlink()


def _advice(settings, used, threads):
    """One line for each setting that can't do here what it is there for."""
    if not used:
        if settings.gpus is not None:
            yield "no GPU: BASKET_GPUS has no effect"
        if settings.gpu_memory_fraction is not None:
            yield "no GPU: BASKET_GPU_MEMORY_FRACTION has no effect"
    if settings.batching and threads < settings.max_batch_size:
        yield (
            f"{threads} threads can't fill a batch of {settings.max_batch_size} with "
            f"single rows: --threads={settings.max_batch_size} or more can"
        )
