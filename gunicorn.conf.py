"""Gunicorn's configuration: settings, then its hooks in the order of their calls.

Threads, workers and address keep Gunicorn's defaults, or come from the command line.
`--worker-class sync|gthread|gevent` selects a worker of Gunicorn's own, over WSGI.
"""

import itertools
import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

from app import create_model_process, gpus, interpreter, run_dir, start_checks
from app.errors import SettingsError
from app.rims import gunicorn_private as arbiter
from app.rims.model_worker import ModelSockets, ModelWorker
from app.settings import Settings, key_file, model_source, unknown_variables
from app.tracing.environment import are_traces_on

worker_class = "app.rims.worker.EventLoopWorker"
# No framework survives a fork, so each worker loads its models itself.
preload_app = False
# Seconds; longer than the think time of most clients.
keepalive = 75
# All servers of a user would share one control socket, and Basket needs none.
control_socket_disable = True
# For Gunicorn's own workers: clients must not set SCRIPT_NAME through a proxy on this
# machine. Basket's worker ignores such headers.
forwarder_headers = ""
# For heartbeat files and the run directory.
worker_tmp_dir = run_dir.in_shared_memory()

# Supervisors usually wait 30 s for the first answer.
_MAX_BACKLOG_WAIT_S = 20
_MODEL_FOLDER_RETRY_S = 1
# All requests are answered by then.
_THREADS_END_WITHIN_S = 1


@contextmanager
def _exit_on_configuration_error():
    try:
        yield
    except SettingsError as error:
        sys.exit(f"Basket does not start: {error}")


@_exit_on_configuration_error()
def on_starting(server):
    """Check all settings, then create the run directory."""
    arbiter.keep_start_environment(server)
    settings, cfg = Settings.from_environment(), server.cfg
    server.log.info("serving %s", os.path.abspath(settings.model or settings.model_dir))
    key_file.check(settings)
    model_source.check(settings)
    are_traces_on()
    has_own_worker = cfg.worker_class_str == worker_class
    start_checks.check_options(cfg, has_own_worker=has_own_worker)
    if not arbiter.is_reexecuted(server):
        start_checks.check_grpc(settings, cfg, has_own_worker=has_own_worker)
    used = gpus.choose(settings.gpus, gpus.visible())
    processes = _model_processes(settings, used) or cfg.workers
    gpus.check_memory_fractions(processes, used, settings.gpu_memory_fraction)
    if settings.model is None:
        with run_dir.as_settings_error("BASKET_MODEL_DIR", settings.model_dir):
            os.listdir(settings.model_dir)
    for line in start_checks.settings_without_effect(
        settings,
        cfg,
        has_gpus=bool(used),
        is_asynchronous=has_own_worker or cfg.worker_class_str == "gevent",
    ):
        server.log.info(line)
    if not interpreter.is_optimized():
        server.log.info(
            "%s was compiled without --enable-optimizations: requests take more "
            "processor time (docs/performance.md, Python)",
            sys.executable,
        )
    for line in unknown_variables():
        server.log.warning(line)
    if has_own_worker:
        ports = 1 if settings.grpc_bind is None else 2
        for line in start_checks.raise_file_limit(cfg.worker_connections, ports=ports):
            server.log.warning(line)
    run_dir.create(cfg.worker_tmp_dir, reexecuted=arbiter.is_reexecuted(server))
    run_dir.copy_batching_parameters(settings.batching_parameters_file)
    run_dir.change_owner(cfg.user, cfg.group)
    # Later hooks must not read the settings again: the model folder may be away.
    server.basket = settings


def when_ready(server):
    """Add model processes to the workers, before the first one is forked."""
    _add_model_processes(server)


def on_reload(server):
    """At a HUP: add new model processes, and keep old workers until new ones listen."""
    arbiter.restore_start_environment(server)
    _add_model_processes(server)
    arbiter.keep_old_workers(server)


def pre_fork(server, worker):
    """Choose a worker's GPU in the master, which knows the GPUs of all workers."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    worker.model_processes = _model_processes(server.basket, used)
    living = arbiter.living_workers(server)
    has_web_workers = any(not isinstance(each, ModelWorker) for each in living)
    # After a USR2, the workers of the old master serve the clients, too.
    worker.has_siblings = arbiter.is_reexecuted(server) or has_web_workers
    worker.gpu = None
    if isinstance(worker, ModelWorker):
        worker.gpu = used[worker.slot] if used else None
    elif used and not worker.model_processes:
        worker.gpu = gpus.least_used(used, [each.gpu for each in living])


def post_fork(server, worker):
    """Select the worker's GPU and set up its log, before it imports the application."""
    pool = arbiter.installed_pool(server)
    is_model_process = isinstance(worker, ModelWorker)
    if pool is not None and not is_model_process:
        pool.sockets.close_inherited()
    kind = run_dir.MODEL_PROCESS if is_model_process else run_dir.WORKER
    run_dir.notes_on(run_dir.PROCESSES).add(kind)
    run_dir.provide_temporary_folder()
    if worker.gpu is not None:
        gpus.pin(worker.gpu)
        server.log.info("worker %s uses GPU %s", worker.pid, worker.gpu)
    for name in ("app", "opentelemetry"):
        log = logging.getLogger(name)
        log.handlers = server.log.error_log.handlers
        log.setLevel(server.log.error_log.level)
        # Only where --log-config wants it: a warning of TensorFlow adds a handler to
        # the root logger.
        log.propagate = server.log.error_log.propagate
    _wait_for_model_folder(server, worker)


def post_worker_init(worker):
    """Load all models before the worker listens, and begin to note stuck models.

    Also say where it listens, which decides on web pages of other sites.
    """
    if isinstance(worker, ModelWorker):
        return
    parts = worker.wsgi.wsgi_app.server
    parts.rights.cross_site.listens_at(arbiter.listening_hosts(worker))
    if not worker.model_processes:
        parts.health.start()
    is_first = worker.age == _age_of_first(worker)
    # The first worker listens at once and answers readiness probes.
    if worker.has_siblings or not is_first:
        _wait_for_models(worker, parts.loader)
    elif address := arbiter.browser_address(worker):
        shown = worker.log, parts.loader, address
        threading.Thread(target=_show_address, args=shown, daemon=True).start()
    arbiter.show_listening(worker)


def worker_exit(server, worker):
    """Let a worker end although a thread of the user's own code never ends.

    The interpreter waits for such threads, and the arbiter for the worker.
    """
    if worker.booted:
        threading.Thread(target=_end_process, args=(server,), daemon=True).start()


def child_exit(server, worker):
    """Remove a dead worker's gauges and notes, and count it; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)
    for topic in (run_dir.STUCK, run_dir.PROCESSES):
        run_dir.notes_on(topic).remove_process(worker.pid)
    run_dir.count_end()
    if isinstance(worker, ModelWorker):
        arbiter.close_sockets_of(server, worker)


def _end_process(server):
    """End the process, unless it ends in order before."""
    time.sleep(_THREADS_END_WITHIN_S)
    server.log.warning("worker %s ends while threads of it still run", os.getpid())
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _model_processes(settings, used_gpus):
    """Return the number of model processes; 0: each worker holds the models."""
    return max(len(used_gpus), 1) if settings.model_process == "shared" else 0


@_exit_on_configuration_error()
def _add_model_processes(server):
    """Open sockets for model processes, and have the arbiter start these as workers."""
    used = gpus.choose(server.basket.gpus, gpus.visible())
    processes = _model_processes(server.basket, used)
    if not processes:
        return
    sockets = ModelSockets(create_model_process)
    with run_dir.as_settings_error("--worker-tmp-dir", server.cfg.worker_tmp_dir):
        paths = sockets.open(os.environ[run_dir.RUN_DIR], processes)
    run_dir.change_owner(server.cfg.user, server.cfg.group)
    run_dir.publish_model_sockets(paths)
    arbiter.WorkerPool(server, sockets, processes).install()


def _age_of_first(worker):
    """Return the age that Gunicorn gives the first worker, after model processes."""
    return 1 + worker.model_processes


def _show_address(log, loader, address):
    """Say where the server is, once its models are ready or have failed."""
    loader.wait()
    log.info("open %s in a browser", address)


def _wait_for_models(worker, loader):
    """Wait until all models are loaded; without siblings, for a limited time.

    Meanwhile siblings answer the clients, or these wait in the backlog. A worker that
    listens earlier answers 503 "is loading".
    """
    for _ in itertools.count() if worker.has_siblings else range(_MAX_BACKLOG_WAIT_S):
        if loader.wait(timeout_s=1) or not worker.alive:
            break
        worker.notify()


def _wait_for_model_folder(server, worker):
    """Wait while the model folder can't be read, except at the server's start.

    A worker that fails before it listens would make Gunicorn stop the whole server.
    With BASKET_MODEL it starts, and answers 503: it waits only if siblings serve.
    """
    is_first = arbiter.started_workers(server) <= _age_of_first(worker)
    starts = not worker.has_siblings and (is_first or server.basket.model is not None)
    folder, mode, is_logged = server.basket.model_dir, os.R_OK | os.X_OK, False
    if server.basket.model is not None:
        folder, mode = server.basket.model, os.R_OK
    while not starts and not os.access(folder, mode):
        if os.getppid() != worker.ppid:
            sys.exit()
        if not is_logged:
            is_logged = True
            server.log.warning("worker %s waits for %s", worker.pid, folder)
            # The handlers inherited from the master would only record a signal.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
        worker.notify()
        time.sleep(_MODEL_FOLDER_RETRY_S)
