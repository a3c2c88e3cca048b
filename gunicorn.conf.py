"""Gunicorn's side of Basket: the worker class, checks, metrics files and GPUs.

Threads, workers and address are left to the command line and to Gunicorn's own
defaults. `--worker-class sync|gthread|gevent` gives Gunicorn's own workers over WSGI.
"""

import itertools
import logging
import os
import resource
import signal
import sys
import time
from contextlib import contextmanager

from app import MODEL_SOCKETS, STUCK_DIR, advice, create_model_process, gpus, run_dir
from app.errors import SettingsError
from app.server import gunicorn_arbiter as arbiter
from app.server.model_worker import ModelSockets, ModelWorker
from app.settings import Settings, unknown_variables

worker_class = "app.server.worker.EventLoopWorker"
# No framework survives a fork, so the model loads in the worker.
preload_app = False
# Seconds. Clients that think between requests keep their connection.
keepalive = 75
# Its default path is one for all servers of a user, and nothing here needs it.
control_socket_disable = True
# Else a client of a proxy on this machine could say that a path is another one, past
# whatever the proxy keeps inside: not each proxy drops a SCRIPT_NAME among the headers.
# It counts for Gunicorn's own workers; Basket's has no such headers.
forwarder_headers = ""
# For heartbeats, and for what the workers share.
worker_tmp_dir = run_dir.in_memory()

# Below the half minute after which most supervisors take silence for death.
_BACKLOG_WAIT_S = 20
# Before the next look for a folder of models that is away.
_LOOK_EVERY_S = 1


@contextmanager
def _start():
    """End the server where a setting is wrong."""
    try:
        yield
    except SettingsError as error:
        sys.exit(f"Basket does not start: {error}")


@_start()
def on_starting(server):
    """Refuse configuration errors, then make the folder that the workers share."""
    arbiter.keep_start_environment(server)
    settings = Settings.from_environment()
    _refuse_unsupported(server.cfg)
    used = gpus.choose(settings.gpus, gpus.visible())
    processes = _model_processes(settings, used) or server.cfg.workers
    gpus.check_shares(processes, used, settings.gpu_memory_fraction)
    with run_dir.usable("BASKET_MODEL_DIR", settings.model_dir):
        os.listdir(settings.model_dir)
    for line in advice.lines(settings, used, _at_a_time(server.cfg, settings)):
        server.log.info(line)
    for line in (*unknown_variables(), *_on_open_files(server.cfg)):
        server.log.warning(line)
    reexecuted = arbiter.is_reexecuted(server)
    run_dir.make(server.cfg.worker_tmp_dir, reexecuted=reexecuted)
    run_dir.keep_batching_parameters(settings.batching_parameters_file)
    run_dir.hand_over(server.cfg.user, server.cfg.group)
    # For the hooks to come: the folder of models may be away by then.
    server.basket = settings


def when_ready(server):
    """Gunicorn has checked the worker class; no worker is there yet."""
    _share_models(server)


def on_reload(server):
    """A HUP has set Gunicorn's own worker again, and new ones are about to come."""
    arbiter.restore_start_environment(server)
    _share_models(server)
    arbiter.keep_old_workers(server)


def pre_fork(server, worker):
    """Choose the GPU of a process with models, while the living can be counted."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    worker.model_processes = _model_processes(server.basket, used)
    living = arbiter.living_workers(server)
    # A re-executed master's clients have the workers of the old one.
    others = any(not isinstance(each, ModelWorker) for each in living)
    worker.has_siblings = arbiter.is_reexecuted(server) or others
    worker.gpu = None
    if isinstance(worker, ModelWorker):
        worker.gpu = used[worker.slot] if used else None
    elif used and not worker.model_processes:
        worker.gpu = gpus.least_used(used, [each.gpu for each in living])


def post_fork(server, worker):
    """Before the application is imported: a GPU, a log, and models to be read."""
    pool = arbiter.installed_pool(server)
    if pool is not None and not isinstance(worker, ModelWorker):
        pool.sockets.close_inherited()
    run_dir.be_temporary_folder()
    if worker.gpu is not None:
        gpus.pin(worker.gpu)
        server.log.info("worker %s uses GPU %s", worker.pid, worker.gpu)
    log = logging.getLogger("app")
    log.handlers = server.log.error_log.handlers
    log.setLevel(server.log.error_log.level)
    _await_models(server, worker)


def post_worker_init(worker):
    """Have every worker but the first of all load its models before it listens.

    Clients of a worker that takes another's place would hear "is loading"; this way
    its siblings serve them, or they wait in the kernel's backlog. The first worker
    listens at once, so that readiness can be asked, and so does an only worker
    whose models take long. From now on a worker with models tells what is stuck in it.
    """
    if isinstance(worker, ModelWorker):
        return
    extensions = getattr(worker.wsgi, "application", worker.wsgi).extensions
    if not worker.model_processes:
        extensions["health"].start()
    patience = itertools.count() if worker.has_siblings else range(_BACKLOG_WAIT_S)
    is_first = worker.age == 1 + worker.model_processes and not worker.has_siblings
    for _ in () if is_first else patience:
        if extensions["basket"].wait(timeout_s=1) or not worker.alive:
            break
        worker.notify()
    arbiter.show_listening(worker)


def child_exit(server, worker):
    """Take a dead worker's gauges out of the sums, and what was stuck in it.

    Its counters stay.
    """
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)
    stuck = run_dir.shared(STUCK_DIR)
    (stuck / str(worker.pid)).unlink(missing_ok=True)
    if isinstance(worker, ModelWorker):
        arbiter.close_sockets_of(server, worker)


def _refuse_unsupported(cfg):
    """Refuse what no model survives, and what Basket's worker does not speak.

    Raises:
        SettingsError: one of these is set.
    """
    if cfg.preload_app:
        raise SettingsError("--preload: a model does not survive the fork")
    if cfg.worker_class_str != worker_class:
        return
    if cfg.proxy_protocol not in ("off", False):
        raise SettingsError(
            "--proxy-protocol: Basket speaks plain HTTP; put nginx in front "
            "(listen ... proxy_protocol), which sends X-Forwarded-For"
        )
    if "h2" in cfg.http_protocols or cfg.http2_cleartext != "off":
        raise SettingsError(
            "--http-protocols: Basket speaks HTTP/1.1; put nginx in front "
            "(http2 on), which speaks HTTP/2 to clients"
        )


def _at_a_time(cfg, settings):
    """Return how many requests the server has at a time for one model."""
    workers = cfg.workers if settings.model_process == "shared" else 1
    if cfg.worker_class_str in (worker_class, "gevent"):
        number = cfg.worker_connections * workers
        return advice.AtATime(number, "connections", "--worker-connections")
    return advice.AtATime(cfg.threads * workers, "threads", "--threads")


def _on_open_files(cfg):
    """Take as many as a worker's connections need, or say that they are not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = advice.open_files(cfg.worker_connections)
    is_enough = soft == resource.RLIM_INFINITY or soft >= needed
    if is_enough or cfg.worker_class_str != worker_class:
        return []
    is_allowed = hard == resource.RLIM_INFINITY or hard >= needed
    taken = needed if is_allowed else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    line = advice.on_open_files(taken, cfg.worker_connections)
    return [] if is_allowed else [line]


def _model_processes(settings, used):
    """Return how many processes hold models for all workers; 0: each worker its own."""
    return max(len(used), 1) if settings.model_process == "shared" else 0


@_start()
def _share_models(server):
    """Have Gunicorn keep model processes beside its workers."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    processes = _model_processes(server.basket, used)
    if not processes:
        return
    sockets = ModelSockets(create_model_process)
    with run_dir.usable("--worker-tmp-dir", server.cfg.worker_tmp_dir):
        paths = sockets.open(os.environ[run_dir.RUN_DIR], processes)
    run_dir.hand_over(server.cfg.user, server.cfg.group)
    os.environ[MODEL_SOCKETS] = "\n".join(paths)
    arbiter.WorkerPool(server, sockets, processes).install()


def _await_models(server, worker):
    """Where others serve, wait while the folder of models can't be read.

    A worker that fails before it listens would end them all.
    """
    folder, is_told = server.basket.model_dir, False
    while worker.has_siblings and not os.access(folder, os.R_OK | os.X_OK):
        if os.getppid() != worker.ppid:
            sys.exit()
        if not is_told:
            is_told = True
            server.log.warning("worker %s waits for %s", worker.pid, folder)
            # It has the master's handlers yet, which only make a note.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
        worker.notify()
        time.sleep(_LOOK_EVERY_S)
