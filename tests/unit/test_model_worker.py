"""Model processes among Gunicorn's workers."""

import importlib.util
import logging
import os
import socket
import sys
from pathlib import Path

import pytest
from gunicorn.config import Config
from gunicorn.workers.sync import SyncWorker

from app import MODEL_SOCKETS, gpus
from app.run_dir import RUN_DIR
from app.settings import Settings
from app.workers.model import Crew, ModelWorker

CONFIG = Path(__file__).parents[2] / "gunicorn.conf.py"


class Server:
    """What a crew and the hooks ask of Gunicorn's arbiter."""

    def __init__(self, workers=2):
        self.cfg = Config()
        self.cfg.set("workers", workers)
        self.num_workers = workers
        self.worker_class = SyncWorker
        self.WORKERS = {}
        self.worker_age = self.master_pid = 0
        self.environ_at_start = {}
        self.made = []
        self.log = logging.getLogger("test")

    def spawn(self):
        """As the arbiter makes a worker, without the fork."""
        age = len(self.WORKERS) + 1
        worker = self.worker_class(age, 1, [], None, 30, self.cfg, self.log)
        self.WORKERS[age] = worker
        self.made.append(worker)
        return worker

    def close(self):
        for worker in self.made:
            worker.tmp.close()
            if isinstance(worker, ModelWorker):
                worker.crew.close()
        self.worker_class.close()


@pytest.fixture(name="crew")
def _crew(tmp_path_factory):
    server = Server()
    server.worker_class = Crew(server, SyncWorker, lambda listener: listener, 2)
    server.worker_class.open(str(tmp_path_factory.mktemp("t")))
    yield server
    server.close()


@pytest.fixture(name="conf")
def _conf(monkeypatch, tmp_path_factory):
    """The hooks, for a machine with GPUs 1 and 3."""
    run_dir = tmp_path_factory.mktemp("t")
    for name in [name for name in os.environ if name.startswith("BASKET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", str(run_dir))
    monkeypatch.setenv("BASKET_MODEL_PROCESS", "shared")
    monkeypatch.setenv(RUN_DIR, str(run_dir))
    monkeypatch.setenv(MODEL_SOCKETS, "")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(run_dir))
    there = (gpus.Gpu(1, "GPU-b", 8192), gpus.Gpu(3, "GPU-d", 8192))
    monkeypatch.setattr(gpus, "visible", lambda: there)
    spec = importlib.util.spec_from_file_location("gunicorn_conf", CONFIG)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_model_workers_come_first_and_come_back(crew):
    """Two model workers are made, then web workers, and a lost one is replaced."""
    made = [crew.spawn() for _ in range(4)]
    assert [type(worker) for worker in made] == [ModelWorker] * 2 + [SyncWorker] * 2
    assert [worker.slot for worker in made[:2]] == [0, 1]
    del crew.WORKERS[1]
    assert crew.spawn().slot == 0
    assert type(crew.spawn()) is SyncWorker


def test_the_arbiter_never_takes_a_model_worker_for_the_oldest(crew):
    """Of too many workers the arbiter ends the oldest, which is one of the web's."""
    made = [crew.spawn() for _ in range(4)]
    assert min(made, key=lambda worker: worker.age) is made[2]


def test_a_crew_listens_until_it_is_closed(crew):
    """A web worker can connect although no model process is there, and not after."""
    paths = [str(file) for file in crew.worker_class._folder.iterdir()]
    assert len(paths) == 2
    with socket.socket(socket.AF_UNIX) as web:
        web.connect(paths[0])
    crew.worker_class.close()
    assert not os.path.exists(paths[0])
    crew.worker_class.close()


def test_each_model_worker_gets_a_gpu_and_web_workers_none(conf):
    """With two GPUs there are two model workers more, each on a GPU of its own."""
    server = Server(workers=3)
    server.basket = Settings.from_environment()
    conf.when_ready(server)
    assert server.num_workers == server.cfg.workers == 5
    assert len(os.environ[MODEL_SOCKETS].splitlines()) == 2
    for _ in range(5):
        conf.pre_fork(server, server.spawn())
    used = [worker.gpu for worker in server.WORKERS.values()]
    assert used == [1, 3, None, None, None]
    siblings = [worker.has_siblings for worker in server.WORKERS.values()]
    assert siblings[-1]
    paths = os.environ[MODEL_SOCKETS].splitlines()
    assert all(map(os.path.exists, paths))
    server.close()
    assert not any(map(os.path.exists, paths))


def test_a_reload_ends_the_model_workers_of_before(conf):
    """After a HUP the old model workers are the oldest, and their sockets go last."""
    server = Server(workers=1)
    server.basket = Settings.from_environment()
    conf.when_ready(server)
    before = [server.spawn() for _ in range(3)]
    old = before[0].crew
    # As Gunicorn reads its configuration again.
    server.cfg, server.num_workers = Config(), 1
    server.cfg.set("workers", 1)
    server.worker_class = SyncWorker
    conf.on_reload(server)
    assert [worker.age for worker in before] == [0, 0, 3]
    assert server.spawn().age == sys.maxsize
    path = next(old._folder.iterdir())
    for age, there_then in ((1, True), (2, False)):
        worker = server.WORKERS.pop(age)
        worker.pid = 0
        conf.child_exit(server, worker)
        assert path.exists() is there_then
    server.close()
