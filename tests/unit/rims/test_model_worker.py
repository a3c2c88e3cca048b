"""Model workers under Gunicorn's real arbiter."""

import os
import signal
import socket
import sys

import pytest

from app import gpus
from app.rims.gunicorn_private import WorkerPool, installed_pool
from app.rims.model_worker import ModelSockets, ModelWorker
from app.rims.worker import EventLoopWorker
from app.run_dir import MODEL_SOCKETS, RUN_DIR
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
    # The path of a socket must be short.
    folder = str(tmp_path_factory.mktemp("t"))
    for name in [name for name in os.environ if name.startswith("BASKET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BASKET_MODEL_DIR", folder)
    monkeypatch.setenv("BASKET_MODEL_PROCESS", "shared")
    monkeypatch.setenv(RUN_DIR, folder)
    monkeypatch.setenv(MODEL_SOCKETS, "")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", folder)
    present = (gpus.Gpu(1, "GPU-b", 8192), gpus.Gpu(3, "GPU-d", 8192))
    monkeypatch.setattr(gpus, "visible", lambda: present)
    arbiter = gunicorn.arbiter(workers=1)
    arbiter.basket = Settings.from_environment()
    arbiter.basket_environ_at_start = {}
    arbiter.cfg.when_ready(arbiter)
    yield arbiter
    installed_pool(arbiter).sockets.close()


def paths():
    return os.environ[MODEL_SOCKETS].splitlines()


def test_model_workers_are_forked_first_and_replaced(gunicorn, arbiter):
    """Two model workers are forked before web workers, and a dead one is replaced."""
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    kinds = [ModelWorker, ModelWorker, EventLoopWorker, EventLoopWorker]
    assert [type(worker) for worker in made] == kinds
    assert [worker.slot for worker in made[:2]] == [0, 1]
    arbiter.WORKERS.pop(made[0].pid).tmp.close()
    assert gunicorn.spawn(arbiter).slot == 0
    assert type(gunicorn.spawn(arbiter)) is EventLoopWorker


def test_arbiter_stops_web_workers_if_there_are_too_many(
    gunicorn, arbiter, monkeypatch
):
    """The arbiter stops the oldest web worker, and no model worker."""
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    killed = []
    monkeypatch.setattr(os, "kill", lambda *args: killed.append(args))
    arbiter.manage_workers()
    assert killed == [(made[2].pid, signal.SIGTERM)]


def test_model_sockets_listen_until_they_are_closed(tmp_path_factory):
    """A web worker can connect before a model process runs; close may be repeated."""
    sockets = ModelSockets(lambda listener: listener)
    opened = sockets.open(str(tmp_path_factory.mktemp("t")), 2)
    assert len(opened) == 2
    with socket.socket(socket.AF_UNIX) as web:
        web.connect(opened[0])
    sockets.close()
    assert not os.path.exists(opened[0])
    sockets.close()


def test_each_model_worker_has_a_gpu_and_web_workers_have_none(gunicorn, arbiter):
    """With two GPUs the arbiter keeps two model workers beside the web workers."""
    assert isinstance(arbiter.worker_class, WorkerPool)
    assert arbiter.num_workers == arbiter.cfg.workers == 3
    assert len(paths()) == 2
    made = [gunicorn.spawn(arbiter) for _ in range(4)]
    assert [worker.gpu for worker in made] == [1, 3, None, None]
    assert [worker.has_siblings for worker in made] == [False, False, False, True]
    assert all(map(os.path.exists, paths()))


def test_sighup_replaces_the_model_workers(gunicorn, arbiter):
    """The old model workers are stopped first; the last one takes their sockets."""
    before = [gunicorn.spawn(arbiter) for _ in range(3)]
    old = paths()
    gunicorn.reload(arbiter)
    assert [worker.age for worker in before] == [0, 0, 3]
    assert arbiter.num_workers == 3
    new = gunicorn.spawn(arbiter)
    assert (new.slot, new.age) == (0, sys.maxsize)
    assert set(paths()).isdisjoint(old)
    for worker, is_open in zip(before[:2], (True, False), strict=True):
        del arbiter.WORKERS[worker.pid]
        arbiter.cfg.child_exit(arbiter, worker)
        worker.tmp.close()
        assert os.path.exists(old[0]) is is_open
    assert all(map(os.path.exists, paths()))
