"""Gunicorn's side of Basket: checks, metrics files, GPUs, and an orderly stop.

Threads, workers and address are left to the command line and to Gunicorn's own
defaults: `gunicorn wsgi:app` is one sync worker, `--threads=20` lets batches form.
"""

import itertools
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from gunicorn.workers.gthread import ThreadWorker

from app import RUN_DIR, gpus
from app.errors import SettingsError
from app.gunicorn_worker import GracefulThreadWorker
from app.settings import Settings, unknown_variables

# No framework survives a fork, so the model loads in the worker.
preload_app = False
# Seconds. Clients that think between requests keep their connection.
keepalive = 75
# Its default path is one for all servers of a user, and nothing here needs it.
control_socket_disable = True

_METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
# Below the half minute after which most supervisors take silence for death.
_BACKLOG_WAIT_S = 20


def on_starting(server):
    """Refuse settings that can't be, then make room for what the workers share."""
    try:
        settings = Settings.from_environment()
        if server.cfg.preload_app:
            raise SettingsError("--preload: a model does not survive the fork")
        used = gpus.choose(settings.gpus, gpus.visible())
        gpus.check_shares(server.cfg.workers, used, settings.gpu_memory_fraction)
    except SettingsError as error:
        sys.exit(f"Basket does not start: {error}")
    for line in _advice(settings, used, server.cfg.threads):
        server.log.info(line)
    for line in unknown_variables():
        server.log.warning(line)
    _prepare_run_dir(reexecuted=server.master_pid != 0)
    _keep_batching_parameters(settings.batching_parameters_file)
    _choose_worker(server)


def on_reload(server):
    """A HUP has set Gunicorn's own worker again."""
    _choose_worker(server)


def pre_fork(server, worker):
    """Choose the worker's GPU while the living workers can be counted."""
    wanted = Settings.from_environment().gpus
    used = gpus.choose(wanted, gpus.visible())
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
    """Have every worker but the first of all load its models before it listens.

    Clients of a worker that takes another's place would hear "is loading"; this way
    its siblings serve them, or they wait in the kernel's backlog. The first worker
    listens at once, so that readiness can be asked, and so does an only worker
    whose models take long.
    """
    loader = worker.wsgi.extensions["basket"]
    patience = itertools.count() if worker.has_siblings else range(_BACKLOG_WAIT_S)
    for _ in patience if worker.age > 1 else ():
        if loader.wait(timeout_s=1) or not worker.alive:
            break
        worker.notify()


def child_exit(server, worker):
    """Take a dead worker's gauges out of the sums; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)


def on_exit(server):
    """Remove what the workers shared, unless a new master goes on with it."""
    if RUN_DIR in os.environ and not server.reexec_pid:
        shutil.rmtree(os.environ[RUN_DIR], ignore_errors=True)


def _choose_worker(server):
    if server.worker_class is ThreadWorker:
        server.worker_class = GracefulThreadWorker


def _prepare_run_dir(*, reexecuted):
    """Make what the workers share; a re-executed master goes on with the old one's."""
    if not reexecuted or RUN_DIR not in os.environ:
        os.environ[RUN_DIR] = tempfile.mkdtemp(prefix="basket-")
    os.environ.setdefault(_METRICS_DIR, f"{os.environ[RUN_DIR]}/metrics")
    folder = Path(os.environ[_METRICS_DIR])
    folder.mkdir(parents=True, exist_ok=True)
    if not reexecuted:
        for file in folder.glob("*.db"):
            file.unlink()


def _keep_batching_parameters(file):
    """Show the workers a copy, so that those to come read what was checked here."""
    copy = Path(os.environ[RUN_DIR], "batching_parameters")
    if file not in (None, copy):
        shutil.copyfile(file, copy)
        os.environ["BASKET_BATCHING_PARAMETERS_FILE"] = str(copy)


def _advice(settings, used, threads):
    """One line for each setting that can't do here what it is there for."""
    if settings.batching_parameters_file is not None:
        from app import batching_parameters

        for note in batching_parameters.read(settings.batching_parameters_file).notes:
            yield f"BASKET_BATCHING_PARAMETERS_FILE: {note}"
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
