"""Model workers among the workers of Gunicorn's arbiter."""

import os
import signal
import socket
import sys

import pytest

from app import gpus
from app.run_dir import MODEL_SOCKETS, RUN_DIR
from app.server.gunicorn_arbiter import WorkerPool, installed_pool
from app.server.model_worker import ModelSockets, ModelWorker
from app.server.worker import EventLoopWorker
from app.settings import Settings
from tests.support.arbiter import Gunicorn


@pytest.fixture(name="gunicorn")
def _gunicorn(monkeypatch):
    gunicorn = Gunicorn(monkeypatch)
    yield gunicorn
    gunicorn.close()


@pytest.fixture(name="arbiter")
def _arbiter(gunicorn, monkeypatch, tmp_path_factory):
    """An arbiter with one web worker, on a machine with GPUs 1 and 3."""
    # The kernel wants short names for sockets.
    folder = str(tmp_path_factory.mktemp("t"))
    for name in [name for name in os.environ if name.startswith("BASKET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", folder)
    monkeypatch.setenv("BASKET_MODEL_PROCESS", "shared")
    monkeypatch.setenv(RUN_DIR, folder)
    monkeypatch.setenv(MODEL_SOCKETS, "")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", folder)
    there = (gpus.Gpu(1, "GPU-b", 8192), gpus.Gpu(3, "GPU-d", 8192))
    monkeypatch.setattr(gpus, "visible", lambda: there)
    arbiter = gunicorn.arbiter(workers=1)
    arbiter.basket = Settings.from_environment()
    arbiter.basket_environ_at_start = {}
    arbiter.cfg.when_ready(arbiter)
    yield arbiter
    installed_pool(arbiter).sockets.close()


def paths():
    return os.environ[MODEL_SOCKETS].splitlines()


def test_model_workers_are_made_first_and_replaced(gunicorn, arbiter):
    """Two model workers are made, then web workers, and a lost one is replaced."""
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    kinds = [ModelWorker, ModelWorker, EventLoopWorker, EventLoopWorker]
    assert [type(worker) for worker in made] == kinds
    assert [worker.slot for worker in made[:2]] == [0, 1]
    lost = arbiter.WORKERS.pop(made[0].pid)
    lost.tmp.close()
    assert gunicorn.spawn(arbiter).slot == 0
    assert type(gunicorn.spawn(arbiter)) is EventLoopWorker


def test_arbiter_never_ends_a_model_worker_as_the_oldest(
    gunicorn, arbiter, monkeypatch
):
    """Of too many workers the arbiter ends the oldest one of the web's."""
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    killed = []
    monkeypatch.setattr(os, "kill", lambda *args: killed.append(args))
    arbiter.manage_workers()
    assert killed == [(made[2].pid, signal.SIGTERM)]


def test_ttou_keeps_the_last_web_worker(gunicorn, arbiter, monkeypatch):
    """TTIN and TTOU count web workers only, though the arbiter counts all."""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    for _ in range(arbiter.num_workers):
        gunicorn.spawn(arbiter)
    arbiter.handle_ttin()
    assert arbiter.num_workers == 4
    for _ in range(3):
        arbiter.handle_ttou()
    assert arbiter.num_workers == 3


def test_model_sockets_listen_until_they_are_closed(tmp_path_factory):
    """A web worker can connect before a model process is there, and not after."""
    sockets = ModelSockets(lambda listener: listener)
    opened = sockets.open(str(tmp_path_factory.mktemp("t")), 2)
    assert len(opened) == 2
    with socket.socket(socket.AF_UNIX) as web:
        web.connect(opened[0])
    sockets.close()
    assert not os.path.exists(opened[0])
    sockets.close()


def test_each_model_worker_has_a_gpu_and_web_workers_have_none(gunicorn, arbiter):
    """With two GPUs there are two model workers more, each on a GPU of its own."""
    assert isinstance(arbiter.worker_class, WorkerPool)
    assert arbiter.num_workers == arbiter.cfg.workers == 3
    assert len(paths()) == 2
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    assert [worker.gpu for worker in made] == [1, 3, None, None]
    assert [worker.has_siblings for worker in made] == [False, False, False, True]
    assert all(map(os.path.exists, paths()))


def test_sighup_replaces_the_model_workers(gunicorn, arbiter):
    """The old model workers become the oldest, and their sockets are closed last."""
    before = [gunicorn.spawn(arbiter) for _ in range(3)]
    old = paths()
    gunicorn.reload(arbiter)
    assert [worker.age for worker in before] == [0, 0, 3]
    assert arbiter.num_workers == 3
    new = gunicorn.spawn(arbiter)
    assert (new.slot, new.age) == (0, sys.maxsize)
    assert set(paths()).isdisjoint(old)
    for worker, there_then in zip(before[:2], (True, False), strict=True):
        del arbiter.WORKERS[worker.pid]
        arbiter.cfg.child_exit(arbiter, worker)
        worker.tmp.close()
        assert os.path.exists(old[0]) is there_then
    assert all(map(os.path.exists, paths()))
