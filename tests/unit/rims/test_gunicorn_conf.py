"""Gunicorn's hooks in gunicorn.conf.py, called by its real arbiter."""

import atexit
import logging
import os
import resource
import socket
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from app import create_app, gpus, run_dir
from app.repository.health import Health
from app.rims.gunicorn_private import installed_pool
from app.run_dir import MODEL_SOCKETS, RUN_DIR
from tests.support.arbiter import Gunicorn, read_config


@pytest.fixture(name="environment")
def _environment(monkeypatch, tmp_path):
    """An environment without settings but for the model and the metrics folder."""
    for name in list(os.environ):
        if name.startswith(("BASKET_", "CUDA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", str(tmp_path))
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "metrics"))
    # So that variables which hooks set are removed at the end.
    for name in (RUN_DIR, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    monkeypatch.setattr(logging.getLogger("app"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("app"), "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger("app"), "propagate", True)
    return monkeypatch


@pytest.fixture(name="gunicorn")
def _gunicorn(environment):
    gunicorn = Gunicorn(environment)
    yield gunicorn
    gunicorn.close()


@pytest.fixture(name="start")
def _start(gunicorn):
    """Make an arbiter that has called `on_starting`."""

    def start(**arguments):
        arbiter = gunicorn.arbiter(**arguments)
        arbiter.cfg.on_starting(arbiter)
        return arbiter

    return start


@contextmanager
def _exit_handlers(patch):
    """Call the functions that the block registers with atexit at its end."""
    at_end = []
    try:
        with patch.context() as patched:
            patched.setattr(atexit, "register", lambda *do: at_end.append(partial(*do)))
            yield
    finally:
        for each in at_end:
            each()


@pytest.fixture(name="two_gpus")
def _two_gpus(environment):
    present = (gpus.Gpu(0, "GPU-a", 8192), gpus.Gpu(1, "GPU-b", 8192))
    environment.setattr(gpus, "visible", lambda: present)


def _denied(*_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("workers", "starts"), [(4, True), (5, False)])
def test_gpu_memory_fractions_above_1_stop_the_start(
    start, environment, workers, starts
):
    """Two workers of half a GPU fit on each of two GPUs, a third does not start."""
    environment.setenv("BASKET_GPU_MEMORY_FRACTION", "0.5")
    if starts:
        start(workers=workers)
    else:
        with pytest.raises(SystemExit, match=r"3 x 0\.5 = 1\.50 is more than 1"):
            start(workers=workers)


@pytest.mark.usefixtures("two_gpus")
def test_workers_are_spread_over_gpus(gunicorn, start):
    """Each worker gets the GPU with the fewest living workers, and sees only that."""
    arbiter = start()
    workers = [gunicorn.spawn(arbiter) for _ in range(3)]
    assert [worker.gpu for worker in workers] == [0, 1, 0]
    arbiter.WORKERS.pop(workers[1].pid).tmp.close()
    replacement = gunicorn.spawn(arbiter)
    assert replacement.gpu == 1
    arbiter.cfg.post_fork(arbiter, replacement)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.usefixtures("two_gpus")
def test_only_the_gpus_of_basket_gpus_are_used(gunicorn, start, environment):
    """A missing GPU ends the start with an error that names it."""
    environment.setenv("BASKET_GPUS", "1")
    arbiter = start()
    assert [gunicorn.spawn(arbiter).gpu for _ in range(2)] == [1, 1]
    environment.setenv("BASKET_GPUS", "0,7")
    with pytest.raises(SystemExit, match="BASKET_GPUS names GPU 7"):
        start()


def test_start_empties_the_metrics_folder_but_not_after_sigusr2(
    gunicorn, start, tmp_path
):
    """A re-executed master shares a folder that the user named with the old master."""
    (tmp_path / "metrics").mkdir()
    old = tmp_path / "metrics" / "counter_1.db"
    old.touch()
    reexecuted = gunicorn.arbiter()
    reexecuted.master_pid = 4711
    reexecuted.cfg.on_starting(reexecuted)
    assert old.exists()
    start()
    assert not old.exists()


def test_metrics_folder_without_write_permission_stops_the_start(start, environment):
    """The master tries to write into a metrics folder before a worker needs it."""
    environment.setattr(run_dir.tempfile, "TemporaryFile", lambda **_: _denied())
    text = "PROMETHEUS_MULTIPROC_DIR='.*metrics': Permission denied"
    with pytest.raises(SystemExit, match=text), _exit_handlers(environment):
        start()


def test_unreadable_model_folder_stops_the_start(start, environment, tmp_path):
    """The start ends with the setting, its value and the reason."""
    environment.setattr(os, "listdir", _denied)
    text = f"not start: BASKET_MODEL_DIR='{tmp_path}': Permission denied"
    with pytest.raises(SystemExit, match=text):
        start()


@pytest.fixture(name="grpc_bind")
def _grpc_bind(environment):
    """The address of a socket that listens, as BASKET_GRPC_BIND, and the socket."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listening:
        bind = f"127.0.0.1:{listening.getsockname()[1]}"
        environment.setenv("BASKET_GRPC_BIND", bind)
        yield bind, listening


def test_grpc_port_of_another_process_stops_the_start(gunicorn, start, grpc_bind):
    """It does, even if that process shares its port; the old master's is no other."""
    bind, listening = grpc_bind
    text = f"not start: BASKET_GRPC_BIND={bind}: Address already in use"
    with pytest.raises(SystemExit, match=text):
        start()
    reexecuted = gunicorn.arbiter()
    reexecuted.master_pid = 4711
    reexecuted.cfg.on_starting(reexecuted)
    listening.close()
    start()
    # It is left to the workers.
    start()


def test_grpc_address_of_another_machine_stops_the_start(start, environment):
    """The start ends with the setting, its value and the reason."""
    environment.setenv("BASKET_GRPC_BIND", "192.0.2.1:8500")
    text = r"BASKET_GRPC_BIND=192\.0\.2\.1:8500: Cannot assign requested address"
    with pytest.raises(SystemExit, match=text):
        start()


def test_grpc_with_another_worker_class_stops_the_start(start, grpc_bind):
    """Only workers of the default class serve it."""
    text = f"BASKET_GRPC_BIND={grpc_bind[0]}: --worker-class sync serves no gRPC"
    with pytest.raises(SystemExit, match=text):
        start(worker_class="sync")


@pytest.mark.parametrize(
    ("uid", "variables", "expected"),
    [
        (0, {"XDG_SESSION_ID": "1"}, "/dev/shm"),
        (999, {"XDG_SESSION_ID": "1"}, "/dev/shm"),
        (1000, {"XDG_SESSION_ID": "1"}, None),
        (1000, {}, "/dev/shm"),
        (1000, {"TMPDIR": "/"}, None),
    ],
)
def test_run_dir_is_in_shared_memory_unless_logout_removes_it_or_tmpdir_is_set(
    environment, uid, variables, expected
):
    """In shared memory, heartbeats and metrics do not depend on a disk that can fill.

    At the end of a login session systemd removes the user's files there.
    """
    for name in ("TMPDIR", "XDG_SESSION_ID"):
        environment.delenv(name, raising=False)
    for name, value in variables.items():
        environment.setenv(name, value)
    environment.setattr(os, "geteuid", lambda: uid)
    assert read_config().worker_tmp_dir == expected


def test_read_only_root_has_a_temporary_folder_in_memory(gunicorn, start, environment):
    """TMPDIR becomes the run directory only if no temporary folder is writable."""
    environment.setenv("TMPDIR", "")
    environment.setattr(tempfile, "tempdir", None)
    with _exit_handlers(environment):
        arbiter = start()
        worker = gunicorn.spawn(arbiter)
        arbiter.cfg.post_fork(arbiter, worker)
        assert not os.environ["TMPDIR"]
        none = {"tempdir": None, "_candidate_tempdir_list": lambda: ["/proc"]}
        with pytest.MonkeyPatch.context() as read_only:
            for name, value in none.items():
                read_only.setattr(tempfile, name, value)
            arbiter.cfg.post_fork(arbiter, worker)
    assert os.environ["TMPDIR"] == os.environ[RUN_DIR]


def test_user_owns_the_run_dir(start, environment, tmp_path):
    """With --user all files in the run directory belong to that user."""
    environment.delenv("PROMETHEUS_MULTIPROC_DIR")
    environment.setenv("BASKET_MODEL_PROCESS", "shared")
    environment.setenv(MODEL_SOCKETS, "")
    parameters = tmp_path / "parameters"
    parameters.write_text("max_batch_size { value: 8 }")
    environment.setenv("BASKET_BATCHING_PARAMETERS_FILE", str(parameters))
    given = {}
    environment.setattr(os, "chown", lambda path, *to: given.update({str(path): to}))
    uid, gid = os.geteuid() + 1, os.getegid() + 1
    with _exit_handlers(environment):
        arbiter = start(user=str(uid), group=str(gid))
        arbiter.cfg.when_ready(arbiter)
        installed_pool(arbiter).sockets.close_inherited()
        folder = Path(os.environ[RUN_DIR])
        owned = {str(path) for path in (folder, *folder.rglob("*"))}
    assert os.environ[MODEL_SOCKETS] in owned
    assert str(folder / run_dir.PROCESSES) in owned
    assert given == dict.fromkeys(owned, (uid, gid))


def test_user_without_permission_stops_the_start(start, environment):
    """The start ends with an error that names --user."""
    environment.setattr(os, "chown", _denied)
    with pytest.raises(SystemExit, match="--user='4711': Permission denied"):
        start(user="4711")


def test_notes_of_a_dead_worker_are_removed(gunicorn, start, environment):
    """A stuck model of a dead worker does not count any more."""
    arbiter = start()
    dead, other = workers = [gunicorn.spawn(arbiter) for _ in range(2)]
    notes = run_dir.notes_on(run_dir.STUCK)
    for worker in workers:
        environment.setattr(os, "getpid", lambda pid=worker.pid: pid)
        notes.add("till version 1")
    arbiter.cfg.child_exit(arbiter, dead)
    assert [note.pid for note in notes.all()] == [other.pid]


def test_worker_is_noted_from_its_fork_to_its_end(gunicorn, start, environment):
    """The page lists the workers that live, and how many have ended."""
    arbiter = start()
    dead, other = workers = [gunicorn.spawn(arbiter) for _ in range(2)]
    for worker in workers:
        environment.setattr(os, "getpid", lambda pid=worker.pid: pid)
        arbiter.cfg.post_fork(arbiter, worker)
    notes = run_dir.notes_on(run_dir.PROCESSES)
    living = {(run_dir.WORKER, worker.pid) for worker in workers}
    assert set(notes.all()) == living
    arbiter.cfg.child_exit(arbiter, dead)
    assert notes.all() == [(run_dir.WORKER, other.pid)]
    assert run_dir.ended() == 1


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_worker_with_models_notes_stuck_ones(
    gunicorn, start, environment, model_process
):
    """The notes begin with the worker; a worker without models writes none."""
    environment.setenv("BASKET_MODEL_PROCESS", model_process)
    started = []
    environment.setattr(Health, "start", lambda _: started.append(1))
    arbiter = start()
    worker = gunicorn.spawn(arbiter)
    worker.wsgi = create_app().flask
    # As if Gunicorn had made the model process first.
    worker.age = 1 + worker.model_processes
    arbiter.cfg.post_worker_init(worker)
    assert len(started) == (model_process == "worker")


_NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("arguments", "limits", "taken"),
    [
        ({}, (64, 1049), 1049),
        ({}, (64, 1050), 1050),
        ({}, (64, _NO_LIMIT), 1050),
        ({}, (1050, 1050), None),
        ({}, (_NO_LIMIT, _NO_LIMIT), None),
        ({"worker_class": "sync"}, (64, 1049), None),
    ],
)
def test_file_descriptor_limit_is_raised_to_the_connections(
    start, environment, caplog, arguments, limits, taken
):
    """As many are taken as the system allows; if those are too few, the log says so."""
    set_to = []
    environment.setattr(resource, "getrlimit", lambda _: limits)
    environment.setattr(resource, "setrlimit", lambda _, each: set_to.append(each))
    start(**arguments)
    assert set_to == ([] if taken is None else [(taken, limits[1])])
    text = "1049 open files are too few for --worker-connections=1000: ulimit -Hn 1050"
    assert (text in caplog.text) is (taken == 1049)
