"""Gunicorn's hooks, with GPUs that are made up because none can be had."""

import atexit
import importlib.util
import logging
import os
import resource
import signal
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from gunicorn.workers.gthread import ThreadWorker
from gunicorn.workers.sync import SyncWorker

from app import MODEL_SOCKETS, STUCK_DIR, gpus, run_dir
from app.run_dir import RUN_DIR
from app.settings import Settings
from app.workers.in_turn import InTurnWorker
from app.workers.strict import Strict

CONFIG = Path(__file__).parents[2] / "gunicorn.conf.py"


@pytest.fixture
def conf():
    return _read()


def _read():
    spec = importlib.util.spec_from_file_location("gunicorn_conf", CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """A clean environment with a folder of models and one for the metrics files."""
    for name in list(os.environ):
        if name.startswith(("BASKET_", "CUDA_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", str(tmp_path))
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "metrics"))
    # What hooks set is undone at the end.
    monkeypatch.setenv(RUN_DIR, "")
    monkeypatch.delenv(RUN_DIR)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(logging.getLogger("app"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("app"), "level", logging.NOTSET)
    return monkeypatch


@contextmanager
def _process(patch):
    """A process, which ends with the block; what it is to do then."""
    todo = []
    try:
        with patch.context() as its_own:
            its_own.setattr(atexit, "register", lambda *do: todo.append(partial(*do)))
            yield todo
    finally:
        for each in todo:
            each()


def _server(worker_class=SyncWorker, **cfg):
    sizes = {"workers": 1, "threads": 1, "worker_connections": 1000}
    others = {"preload_app": False, "worker_tmp_dir": None, "env_orig": {}}
    owner = {"uid": os.geteuid(), "gid": os.getegid()}
    return SimpleNamespace(
        cfg=SimpleNamespace(**{**others, **sizes, **owner, **cfg}),
        log=logging.getLogger("test"),
        environ_at_start={},
        master_pid=0,
        reexec_pid=0,
        worker_age=0,
        worker_class=worker_class,
        WORKERS={},
    )


def _server_with_a_worker():
    server = _server()
    server.log.error_log = SimpleNamespace(handlers=[], level=logging.INFO)
    server.WORKERS[9] = SimpleNamespace(gpu=None)
    return server


def _two_gpus(environment):
    there = (gpus.Gpu(0, "GPU-a", 8192), gpus.Gpu(1, "GPU-b", 8192))
    environment.setattr(gpus, "visible", lambda: there)


@pytest.mark.parametrize(("workers", "starts"), [(4, True), (5, False)])
def test_shares_of_a_gpu_that_exceed_it_stop_the_start(
    conf, environment, workers, starts
):
    """Two workers of half a GPU fit on each of two GPUs, a third does not start."""
    _two_gpus(environment)
    environment.setenv("BASKET_GPU_MEMORY_FRACTION", "0.5")
    server = _server(workers=workers)
    if starts:
        conf.on_starting(server)
    else:
        with pytest.raises(SystemExit, match=r"3 x 0\.5 = 1\.50 is more than 1"):
            conf.on_starting(server)


def test_workers_are_spread_over_gpus(conf, environment):
    """Each worker gets the GPU with the fewest living workers, and sees only that."""
    _two_gpus(environment)
    server = _server()
    conf.on_starting(server)
    for pid in (10, 11, 12):
        worker = SimpleNamespace(pid=pid)
        conf.pre_fork(server, worker)
        server.WORKERS[pid] = worker
    assert [worker.gpu for worker in server.WORKERS.values()] == [0, 1, 0]
    del server.WORKERS[11]
    replacement = SimpleNamespace(pid=13)
    conf.pre_fork(server, replacement)
    assert replacement.gpu == 1
    server.log.error_log = SimpleNamespace(handlers=[], level=logging.INFO)
    conf.post_fork(server, replacement)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_wanted_gpus_are_used_alone(conf, environment):
    """With BASKET_GPUS=1 every worker goes to GPU 1."""
    _two_gpus(environment)
    environment.setenv("BASKET_GPUS", "1")
    server = _server()
    conf.on_starting(server)
    for pid in (10, 11):
        worker = SimpleNamespace(pid=pid)
        conf.pre_fork(server, worker)
        server.WORKERS[pid] = worker
        assert worker.gpu == 1


def test_a_gpu_that_is_not_there_stops_the_start(conf, environment):
    """A number in BASKET_GPUS that this machine lacks ends the start by name."""
    _two_gpus(environment)
    environment.setenv("BASKET_GPUS", "0,7")
    with pytest.raises(SystemExit, match="BASKET_GPUS names GPU 7"):
        conf.on_starting(_server())


@pytest.mark.parametrize("hook", ["on_starting", "on_reload"])
def test_the_threaded_worker_is_replaced(conf, environment, hook):
    """Gunicorn's threaded worker gives way to ours, and others become strict."""
    threaded, plain = _server(ThreadWorker), _server(SyncWorker)
    for server in (threaded, plain):
        server.basket = Settings.from_environment()
        getattr(conf, hook)(server)
    assert threaded.worker_class is InTurnWorker
    assert issubclass(plain.worker_class, Strict)
    assert issubclass(plain.worker_class, SyncWorker)


def test_old_metrics_are_emptied_but_not_those_of_a_living_master(
    conf, environment, tmp_path
):
    """A start empties the folder of metrics; a re-executed master shares it."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    old = folder / "counter_1.db"
    old.touch()
    server = _server()
    server.master_pid = 4711
    conf.on_starting(server)
    assert old.exists()
    conf.on_starting(_server())
    assert not old.exists()


def test_a_folder_of_its_own_for_metrics_is_taken_away(conf, environment):
    """A folder that the start has made is gone after the exit, a given one is not."""
    given = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
    with _process(environment):
        conf.on_starting(_server())
    assert given.is_dir()
    environment.delenv("PROMETHEUS_MULTIPROC_DIR")
    with _process(environment):
        conf.on_starting(_server())
        made = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
        assert made.is_dir()
    assert not made.parent.exists()


def test_a_worker_that_ends_leaves_the_folder(conf, environment, tmp_path):
    """A worker has inherited what the master is to do at its exit, and does not."""
    with _process(environment) as inherited:
        conf.on_starting(_server(worker_tmp_dir=str(tmp_path)))
        with environment.context() as worker:
            worker.setattr(os, "getpid", lambda: -1)
            for each in inherited:
                each()
        assert list(tmp_path.glob("basket-*"))


def _denied(*_):
    raise PermissionError(13, "Permission denied")


def test_a_folder_of_models_that_can_not_be_read_stops_the_start(
    conf, environment, tmp_path
):
    """The start ends with the setting, its value and the reason."""
    environment.setattr(os, "listdir", _denied)
    text = f"not start: BASKET_MODEL_DIR='{tmp_path}': Permission denied"
    with pytest.raises(SystemExit, match=text):
        conf.on_starting(_server())


def test_beside_others_a_worker_waits_for_the_folder_of_models(
    conf, environment, tmp_path, caplog
):
    """It shows a heartbeat, can be ended, says once why it waits, and then goes on."""
    models, away, shown, ending = tmp_path / "models", tmp_path / "away", [], []
    models.mkdir()
    environment.setenv("BASKET_MODEL_DIR", str(models))
    server = _server_with_a_worker()
    conf.on_starting(server)
    models.rename(away)
    environment.setattr(signal, "signal", lambda number, _: ending.append(number))
    environment.setattr(
        conf.time, "sleep", lambda _: len(shown) == 2 and away.rename(models)
    )
    worker = SimpleNamespace(pid=10, ppid=os.getppid(), notify=lambda: shown.append(1))
    conf.pre_fork(server, worker)
    conf.post_fork(server, worker)
    assert len(shown) == 2
    assert signal.SIGTERM in ending
    assert caplog.messages == [f"worker 10 waits for {models}"]


def test_a_worker_that_waits_ends_with_the_master(conf, environment, tmp_path):
    """Where its parent is another one by now nobody would end it."""
    server = _server_with_a_worker()
    conf.on_starting(server)
    environment.setattr(os, "access", lambda *_: False)
    worker = SimpleNamespace(pid=10, ppid=-1)
    conf.pre_fork(server, worker)
    with pytest.raises(SystemExit):
        conf.post_fork(server, worker)


@pytest.mark.parametrize("name", ["PROMETHEUS_MULTIPROC_DIR", "--worker-tmp-dir"])
def test_a_folder_that_can_not_be_written_stops_the_start(
    conf, environment, tmp_path, name
):
    """A file in a folder's place is named with the setting, and nothing stays."""
    file = tmp_path / "file"
    file.touch()
    server = _server(worker_tmp_dir=str(tmp_path))
    if name.startswith("-"):
        server.cfg.worker_tmp_dir = str(file)
    else:
        environment.setenv(name, str(file / "metrics"))
    text = f"Basket does not start: {name}='{file}.*': Not a directory"
    with pytest.raises(SystemExit, match=text), _process(environment):
        conf.on_starting(server)
    assert not list(tmp_path.glob("basket-*"))


def test_a_folder_for_metrics_that_takes_no_file_stops_the_start(conf, environment):
    """A folder that is there is tried before a worker needs it."""
    environment.setattr(run_dir.tempfile, "TemporaryFile", lambda **_: _denied())
    text = "PROMETHEUS_MULTIPROC_DIR='.*metrics': Permission denied"
    with pytest.raises(SystemExit, match=text), _process(environment):
        conf.on_starting(_server())


@pytest.mark.parametrize(("temporary", "expected"), [(None, "/dev/shm"), ("/", None)])
def test_what_workers_share_is_in_memory_unless_told_otherwise(
    environment, temporary, expected
):
    """Without TMPDIR, heartbeats and metrics are in memory, where no disk gets full."""
    for name in ("TMPDIR", "XDG_SESSION_ID"):
        environment.delenv(name, raising=False)
    if temporary:
        environment.setenv("TMPDIR", temporary)
    assert _read().worker_tmp_dir == expected


@pytest.mark.parametrize(
    ("uid", "session", "expected"),
    [
        (0, {"XDG_SESSION_ID": "1"}, "/dev/shm"),
        (999, {"XDG_SESSION_ID": "1"}, "/dev/shm"),
        (1000, {"XDG_SESSION_ID": "1"}, None),
        (1000, {}, "/dev/shm"),
    ],
)
def test_what_workers_share_stays_when_a_user_logs_out(
    environment, uid, session, expected
):
    """Who has logged in has it elsewhere, as systemd would remove it from memory."""
    for name in ("TMPDIR", "XDG_SESSION_ID"):
        environment.delenv(name, raising=False)
    for name, value in session.items():
        environment.setenv(name, value)
    environment.setattr(os, "geteuid", lambda: uid)
    assert _read().worker_tmp_dir == expected


def test_the_shared_folder_is_where_heartbeats_are(conf, environment, tmp_path):
    """The folder of sockets and metrics is made in --worker-tmp-dir."""
    conf.on_starting(_server(worker_tmp_dir=str(tmp_path)))
    assert Path(os.environ[RUN_DIR]).parent == tmp_path


def test_a_worker_has_a_temporary_folder_where_the_system_has_none(conf, environment):
    """With a read-only root its TMPDIR is the folder in memory; else it is left."""
    environment.setenv("TMPDIR", "")
    environment.setattr(tempfile, "tempdir", None)
    server = _server()
    worker = SimpleNamespace(pid=1, gpu=None, has_siblings=False)
    server.log.error_log = SimpleNamespace(handlers=[], level=logging.INFO)
    with _process(environment):
        conf.on_starting(server)
        conf.post_fork(server, worker)
        assert not os.environ["TMPDIR"]
        none = {"tempdir": None, "_candidate_tempdir_list": lambda: ["/proc"]}
        with pytest.MonkeyPatch.context() as read_only:
            for name, value in none.items():
                read_only.setattr(tempfile, name, value)
            conf.post_fork(server, worker)
    assert os.environ["TMPDIR"] == os.environ[RUN_DIR]


def test_workers_of_another_user_own_what_they_share(conf, environment, tmp_path):
    """With --user they are given the folder, and all that is in it at their start."""
    environment.delenv("PROMETHEUS_MULTIPROC_DIR")
    environment.setenv("BASKET_MODEL_PROCESS", "shared")
    environment.setenv(MODEL_SOCKETS, "")
    parameters = tmp_path / "parameters"
    parameters.write_text("max_batch_size { value: 8 }")
    environment.setenv("BASKET_BATCHING_PARAMETERS_FILE", str(parameters))
    given = {}
    environment.setattr(os, "chown", lambda path, *to: given.update({str(path): to}))
    uid, gid = os.geteuid() + 1, os.getegid() + 1
    server = _server(uid=uid, gid=gid, set=lambda *_: None)
    with _process(environment):
        conf.on_starting(server)
        conf.when_ready(server)
        server.worker_class.let_go()
        folder = Path(os.environ[RUN_DIR])
        owned = {str(path) for path in (folder, *folder.rglob("*"))}
    assert os.environ[MODEL_SOCKETS] in owned
    assert given == dict.fromkeys(owned, (uid, gid))


def test_a_user_that_workers_can_not_have_stops_the_start(conf, environment):
    """Who may not give files away is told which argument wants it."""
    environment.setattr(os, "chown", _denied)
    with pytest.raises(SystemExit, match="--user='-5': Permission denied"):
        conf.on_starting(_server(uid=-5))


def test_a_re_executed_master_has_a_folder_of_its_own(conf, environment):
    """Each master removes what its own workers shared, whichever ends first."""
    old, new = _server(), _server()
    with _process(environment):
        conf.on_starting(old)
        of_old = os.environ[RUN_DIR]
        old.reexec_pid, new.master_pid = 4711, 4710
        with environment.context() as its_own, _process(environment):
            # It is started with the environment that the old one was started with.
            its_own.delenv(RUN_DIR)
            conf.on_starting(new)
            of_new = os.environ[RUN_DIR]
        assert not Path(of_new).exists()
        assert Path(of_old).is_dir()
    assert not Path(of_old).exists()


def test_a_re_executed_master_begins_with_the_environment_of_the_start(
    conf, environment
):
    """A HUP reads it again with what hooks have set in it, and that is put back."""
    server = _server(env_orig={"TZ": "UTC"})
    conf.on_starting(server)
    server.cfg.env_orig, server.worker_class = dict(os.environ), SyncWorker
    conf.on_reload(server)
    assert server.cfg.env_orig == {"TZ": "UTC"}


def test_what_was_stuck_in_a_dead_worker_is_forgotten(conf, environment):
    """A worker's note goes with it, so that it never speaks for another process."""
    conf.on_starting(_server())
    folder = Path(os.environ[RUN_DIR], STUCK_DIR)
    folder.mkdir()
    notes = [folder / pid for pid in ("4711", "4712")]
    for note in notes:
        note.touch()
    for pid in (4711, 4713):
        conf.child_exit(_server(), SimpleNamespace(pid=pid))
    assert [note.exists() for note in notes] == [False, True]


@pytest.mark.parametrize(("model_processes", "told"), [(0, ["told"]), (1, [])])
def test_a_worker_with_models_tells_what_is_stuck(conf, model_processes, told):
    """Notes begin with the worker; where it has no models there is nothing to note."""
    said = []
    health = SimpleNamespace(start=lambda: said.append("told"))
    parts = {"basket": None, "health": health}
    first = {"age": 1 + model_processes, "has_siblings": False}
    wsgi = SimpleNamespace(extensions=parts)
    with tempfile.TemporaryFile() as heartbeats:
        parts = {"wsgi": wsgi, "tmp": heartbeats, "model_processes": model_processes}
        conf.post_worker_init(SimpleNamespace(**parts, **first))
    assert said == told


def test_a_misspelt_setting_is_a_warning(conf, environment, caplog):
    """A BASKET_ variable that is no setting is named in the log, with the nearest."""
    environment.setenv("BASKET_MAX_BATCHSIZE", "8")
    conf.on_starting(_server())
    assert "did you mean BASKET_MAX_BATCH_SIZE?" in caplog.text


_NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("worker_class", "limits", "taken"),
    [
        (ThreadWorker, (64, 1049), 1049),
        (ThreadWorker, (64, 1050), 1050),
        (ThreadWorker, (64, _NO_LIMIT), 1050),
        (ThreadWorker, (1050, 1050), None),
        (ThreadWorker, (_NO_LIMIT, _NO_LIMIT), None),
        (SyncWorker, (64, 1049), None),
    ],
)
def test_connections_may_have_as_many_open_files_as_they_need(
    conf, environment, caplog, worker_class, limits, taken
):
    """As many are taken as the system allows; if those are too few, the log says so."""
    set_to = []
    environment.setattr(resource, "getrlimit", lambda _: limits)
    environment.setattr(resource, "setrlimit", lambda _, each: set_to.append(each))
    conf.on_starting(_server(worker_class))
    assert set_to == ([] if taken is None else [(taken, limits[1])])
    text = "1049 open files are too few for --worker-connections=1000: ulimit -Hn 1050"
    assert (text in caplog.text) is (taken == 1049)
