"""Gunicorn's side of Basket: checks, metrics files, GPUs, and an orderly stop.

Threads, workers and address are left to the command line and to Gunicorn's own
defaults: `gunicorn wsgi:app` is one sync worker, `--threads=20` lets batches form.
"""

import itertools
import logging
import os
import resource
import signal
import sys
import time
from contextlib import contextmanager
from functools import partial

from gunicorn.workers.gthread import ThreadWorker

from app import MODEL_SOCKETS, STUCK_DIR, advice, create_model_process, gpus, run_dir
from app.errors import SettingsError
from app.settings import Settings, unknown_variables
from app.workers.in_turn import InTurnWorker
from app.workers.model import Crew, ModelWorker
from app.workers.patient import PatientTls
from app.workers.reload import keep_old_workers, show_listening
from app.workers.strict import strict

# No framework survives a fork, so the model loads in the worker.
preload_app = False
# Seconds. Clients that think between requests keep their connection.
keepalive = 75
# Its default path is one for all servers of a user, and nothing here needs it.
control_socket_disable = True
# Else a client of a proxy on this machine could say that a path is another one, past
# whatever the proxy keeps inside: not each proxy drops a SCRIPT_NAME among the headers.
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
    """Refuse settings that can't be, then make room for what the workers share."""
    server.environ_at_start = server.cfg.env_orig
    settings = Settings.from_environment()
    if server.cfg.preload_app:
        raise SettingsError("--preload: a model does not survive the fork")
    used = gpus.choose(settings.gpus, gpus.visible())
    processes = _model_processes(settings, used) or server.cfg.workers
    gpus.check_shares(processes, used, settings.gpu_memory_fraction)
    with run_dir.usable("BASKET_MODEL_DIR", settings.model_dir):
        os.listdir(settings.model_dir)
    for line in advice.lines(settings, used, _at_a_time(server, settings)):
        server.log.info(line)
    for line in (*unknown_variables(), *_on_open_files(server)):
        server.log.warning(line)
    run_dir.make(server.cfg.worker_tmp_dir, reexecuted=server.master_pid != 0)
    run_dir.keep_batching_parameters(settings.batching_parameters_file)
    run_dir.hand_over(server.cfg.uid, server.cfg.gid)
    _choose_worker(server)
    # For the hooks to come: the folder of models may be away by then.
    server.basket = settings


def when_ready(server):
    """Gunicorn has checked the worker class; no worker is there yet."""
    _share_models(server)


def ssl_context(_, default_ssl_context_factory):
    """Bound the time for a TLS handshake."""
    context = default_ssl_context_factory()
    context.sslsocket_class = PatientTls
    return context


def on_reload(server):
    """A HUP has set Gunicorn's own worker again, and new ones are about to come."""
    # By now the environment has what hooks set, which is nothing for a USR2's master.
    server.cfg.env_orig = server.environ_at_start
    _choose_worker(server)
    _share_models(server)
    keep_old_workers(server)


def pre_fork(server, worker):
    """Choose the GPU of a process with models, while the living can be counted."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    worker.model_processes = _model_processes(server.basket, used)
    living = server.WORKERS.values()
    # A re-executed master's clients have the workers of the old one.
    others = any(not isinstance(each, ModelWorker) for each in living)
    worker.has_siblings = server.master_pid != 0 or others
    worker.gpu = None
    if isinstance(worker, ModelWorker):
        worker.gpu = used[worker.slot] if used else None
    elif used and not worker.model_processes:
        worker.gpu = gpus.least_used(used, [each.gpu for each in living])


def post_fork(server, worker):
    """Before the application is imported: a GPU, a log, and models to be read."""
    if isinstance(server.worker_class, Crew) and not isinstance(worker, ModelWorker):
        server.worker_class.let_go()
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
    if not worker.model_processes:
        worker.wsgi.extensions["health"].start()
    loader = worker.wsgi.extensions["basket"]
    patience = itertools.count() if worker.has_siblings else range(_BACKLOG_WAIT_S)
    is_first = worker.age == 1 + worker.model_processes and not worker.has_siblings
    for _ in () if is_first else patience:
        if loader.wait(timeout_s=1) or not worker.alive:
            break
        worker.notify()
    show_listening(worker)


def child_exit(server, worker):
    """Take a dead worker's gauges out of the sums, and what was stuck in it.

    Its counters stay.
    """
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)
    stuck = run_dir.shared(STUCK_DIR)
    (stuck / str(worker.pid)).unlink(missing_ok=True)
    if isinstance(worker, ModelWorker) and worker.crew is not server.worker_class:
        # A reload has put another crew in the place of this worker's.
        others = [getattr(each, "crew", None) for each in server.WORKERS.values()]
        if worker.crew not in others:
            worker.crew.close()


def _choose_worker(server):
    if server.worker_class is ThreadWorker:
        server.worker_class = InTurnWorker
    else:
        server.worker_class = strict(server.worker_class)


def _at_a_time(server, settings):
    """How many requests the server has at a time for one model."""
    cfg = server.cfg
    workers = cfg.workers if settings.model_process == "shared" else 1
    if server.worker_class is ThreadWorker:
        number = cfg.worker_connections * workers
        return advice.AtATime(number, "connections", "--worker-connections")
    return advice.AtATime(cfg.threads * workers, "threads", "--threads")


def _on_open_files(server):
    """Take as many as a worker's connections need, or say that they are not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = advice.open_files(server.cfg.worker_connections)
    is_enough = soft == resource.RLIM_INFINITY or soft >= needed
    if is_enough or server.worker_class is not ThreadWorker:
        return []
    is_allowed = hard == resource.RLIM_INFINITY or hard >= needed
    taken = needed if is_allowed else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    line = advice.on_open_files(taken, server.cfg.worker_connections)
    return [] if is_allowed else [line]


def _model_processes(settings, used):
    """How many processes hold models for all workers; 0: each worker its own."""
    return max(len(used), 1) if settings.model_process == "shared" else 0


@_start()
def _share_models(server):
    """Have Gunicorn keep model processes beside its workers."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    processes = _model_processes(server.basket, used)
    if not processes:
        return
    crew = Crew(server, server.worker_class, create_model_process, processes)
    with run_dir.usable("--worker-tmp-dir", server.cfg.worker_tmp_dir):
        paths = crew.open(os.environ[run_dir.RUN_DIR])
    run_dir.hand_over(server.cfg.uid, server.cfg.gid)
    os.environ[MODEL_SOCKETS] = "\n".join(paths)
    # Those of before a reload go first.
    for worker in server.WORKERS.values():
        if isinstance(worker, ModelWorker):
            worker.age = 0
    server.worker_class = crew
    server.cfg.set("workers", server.cfg.workers + processes)
    server.num_workers = server.cfg.workers
    server.handle_ttou = partial(_leave_out_one, server, processes + 1)


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


def _leave_out_one(server, least):
    """At TTOU: have one web worker less, down to one; Gunicorn counts all as such."""
    if server.num_workers > least:
        type(server).handle_ttou(server)
