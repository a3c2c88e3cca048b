"""A model process and its web workers under Gunicorn."""

import contextlib
import http.client
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import pytest

from testing.clients import Client, at_once, in_parallel
from testing.memory import resident_mib
from testing.server import (
    ROOT,
    lives,
    serving,
    simulated_models,
    wait_for_metric,
    wait_until,
)
from tests.support import worker_classes

SLOW = {"base_ms": 300, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
QUICK = {**SLOW, "base_ms": 1}
SHARED = {"model_process": "shared"}
# CHAOS_ROUNDS=50 for the long run.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "5"))


def row(number):
    return [float(number)] * 8


def model_process(server):
    """Return the process id of the worker that has loaded models last."""
    loading = re.findall(r"\[(\d+)\] \[INFO\] loading model", server.log.read_text())
    return int(loading[-1])


def _fds(pid):
    with contextlib.suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(fd.readlink())


@pytest.fixture(name="temporary")
def _temporary(tmp_path_factory, monkeypatch):
    """A TMPDIR for the server, short enough for the path of a socket."""
    folder = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("where", ["worker", "shared"])
@pytest.mark.parametrize("worker_class", worker_classes.ALL)
def test_each_worker_class_answers_each_row(tmp_path, worker_class, where):
    """Under load each row gets its own answer, and metrics count it once."""
    folder = simulated_models(tmp_path, quick=QUICK)
    args = "--workers=2", *worker_class
    with serving(*args, model_dir=folder, model_process=where) as server:

        def work(place):
            with Client(server.port) as client:
                for number in range(10):
                    client.send([row(place * 10 + number)])
                    answer = client.receive().json()
                    assert answer == {"predictions": [row(place * 10 + number)]}

        in_parallel(work, 8)
        wait_for_metric(server, "basket_requests_total", 80)
        wait_for_metric(server, "basket_batch_rows_sum", 80)
        wait_for_metric(server, "basket_batch_ceiling_rows", 64)
        if where == "shared":
            web = set(server.workers()) - {model_process(server)}
            assert len(web) == 2
            assert max(map(resident_mib, web)) < 80


def test_only_the_model_process_imports_tensorflow(tmp_path):
    """Of five workers one maps TensorFlow, and the web workers stay below 80 MiB."""
    shutil.copytree(ROOT / "models" / "digits", tmp_path / "digits")
    args = ("--workers=4", "--threads=8")
    with serving(*args, model_dir=str(tmp_path), **SHARED) as server:
        for _ in range(20):
            picture = (ROOT / "samples" / "7.png").read_bytes()
            reply = server.request(
                "POST", "/predict", picture, {"Content-Type": "image/png"}
            )
            assert reply.json()["class_id"] == "7"
        with_framework = [
            pid
            for pid in [server.process.pid, *server.workers()]
            if "libtensorflow" in Path(f"/proc/{pid}/maps").read_text()
        ]
        assert with_framework == [model_process(server)]
        web = set(server.workers()) - set(with_framework)
        assert max(map(resident_mib, web)) < 80


def test_batch_forms_across_sync_workers(tmp_path):
    """Requests to four sync workers, which take one each, share a batch."""
    folder = simulated_models(tmp_path, slow=SLOW)
    settings = {"model_dir": folder, "batch_timeout_micros": "20000", **SHARED}
    with serving("--worker-class=sync", "--workers=4", **settings) as server:
        together = False
        # The first requests of a worker take longer.
        for _ in range(5):
            replies, _ = at_once(server.port, [row(n) for n in range(4)])
            sizes = [reply.headers["X-Batch-Size"] for reply in replies]
            together = together or sizes == ["4"] * 4
        assert together


@pytest.mark.timeout(60 + 4 * ROUNDS)
def test_sigkill_of_the_model_process_answers_503(tmp_path, temporary):
    """All 32 clients get an answer at once, and a new model process serves."""
    folder = simulated_models(tmp_path, slow=SLOW)
    args = ("--workers=2", "--threads=16")
    with serving(*args, model_dir=folder, **SHARED) as server:
        for _ in range(ROUNDS):
            _kill_model_process(server)
        assert len(server.workers()) == 3
        sockets = sum(name.startswith("socket:") for name in _fds(server.process.pid))
        # The web listener and the model listener, and none of dead processes.
        assert sockets == 2
        assert len(list(temporary.glob("basket-*/model-*/*"))) == 1
    assert not list(temporary.glob("basket-*"))


def _replies_despite_sigkill(server, pid, clients):
    """Kill a process while clients wait; return the clients and replies of the rest."""
    replies = []
    sent = threading.Barrier(clients + 1)

    def work(place):
        with Client(server.port) as client:
            client.send([row(place)])
            sent.wait()
            with contextlib.suppress(OSError, http.client.HTTPException):
                replies.append((place, client.receive()))

    thread = threading.Thread(target=in_parallel, args=(work, clients))
    thread.start()
    sent.wait()
    # By then most rows are in the model process.
    threading.Event().wait(0.1)
    os.kill(pid, signal.SIGKILL)
    thread.join()
    return replies


def _kill_model_process(server):
    loaded = server.loaded()
    replies = _replies_despite_sigkill(server, model_process(server), 32)
    assert len(replies) == 32
    for _, reply in replies:
        assert reply.status in (200, 503)
        if reply.status == 503:
            assert int(reply.headers["Retry-After"]) >= 1
    # The clients did not wait for the next process, which takes seconds to start.
    assert server.request("GET", "/readyz").status == 503
    assert server.loaded() == loaded
    server.wait_until_ready(loaded + 2)
    replies, _ = at_once(server.port, [row(n) for n in range(32)])
    for number, reply in enumerate(replies):
        assert reply.json() == {"predictions": [row(number)]}


@pytest.mark.timeout(60 + 4 * ROUNDS)
def test_sigkill_of_a_web_worker_loses_only_its_own_requests(tmp_path):
    """Other web workers and the model process are not affected."""
    folder = simulated_models(tmp_path, slow=SLOW)
    args = ("--workers=2", "--threads=8")
    with serving(*args, model_dir=folder, **SHARED) as server:
        model = model_process(server)
        for _ in range(ROUNDS):
            _kill_web_worker(server, model)
        assert model_process(server) == model


def _kill_web_worker(server, model):
    web, loaded = set(server.workers()) - {model}, server.loaded()
    for place, reply in _replies_despite_sigkill(server, min(web), 12):
        assert reply.json() == {"predictions": [row(place)]}
    wait_until(lambda: server.loaded() > loaded, 60)
    assert server.predict([row(1)]).status == 200


def test_stuck_model_ends_its_model_process(tmp_path):
    """After the request timeout the process ends, and a new one serves."""
    folder = simulated_models(tmp_path, hangs={**SLOW, "base_ms": 2500})
    settings = {"model_dir": folder, "max_batch_size": "1", **SHARED}
    args = ("--workers=2", "--threads=4")
    with serving(*args, request_timeout_ms="1000", **settings) as server:
        first, loaded = model_process(server), server.loaded()
        assert server.predict([row(1)]).status in (503, 504)
        wait_until(lambda: first not in server.workers(), 60)
        assert "a model hangs" in server.log.read_text()
        server.wait_until(lambda: server.loaded() == loaded + 2, 60)
        server.wait_until_ready()
        assert model_process(server) != first


def test_hot_swap_and_sighup_fail_no_request(tmp_path):
    """Each request is answered while versions and workers are replaced."""
    folder = simulated_models(tmp_path, quick=QUICK)
    args = ("--workers=2", "--threads=8")
    with serving(*args, model_dir=folder, **SHARED) as server:
        over = threading.Event()
        versions = set()

        def work(place):
            while not over.is_set():
                # A HUP may close an idle keep-alive connection.
                reply = server.predict([row(place)], {"Connection": "close"})
                assert reply.status == 200, reply.body
                assert reply.json() == {"predictions": [row(place)]}
                versions.add(reply.headers["X-Model-Version"])

        clients = threading.Thread(target=in_parallel, args=(work, 8))
        clients.start()
        try:
            for version in ("2", "3", "4"):
                shutil.copytree(tmp_path / "quick" / "1", tmp_path / "quick" / version)
                wait_until(lambda v=version: v in versions, 60)
            before = server.workers()
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: not set(before) & set(server.workers()), 30)
            server.wait_until_ready()
        finally:
            over.set()
            clients.join()
        assert versions == {"1", "2", "3", "4"}
        assert len(server.workers()) == 3


def test_sigusr2_starts_another_model_process(tmp_path, temporary):
    """Each request is answered while a second master replaces the first one."""
    folder, pid = simulated_models(tmp_path / "models", quick=QUICK), tmp_path / "pid"
    args = ("--workers=2", "--threads=8", f"--pid={pid}")
    with serving(*args, model_dir=folder, **SHARED) as server:
        before, loaded = set(server.workers()), server.loaded()
        server.process.send_signal(signal.SIGUSR2)
        try:
            wait_until(lambda: server.loaded() == loaded + 2, 30)
            for number in range(20):
                assert server.predict([row(number)]).status == 200
            assert len(list(temporary.glob("basket-*/model-*/*"))) == 2
            assert server.stop() == 0
            assert not any(map(lives, before))
            for number in range(20):
                assert server.predict([row(number)]).json()["predictions"] == [
                    row(number)
                ]
        finally:
            for file in (pid, tmp_path / "pid.2"):
                with contextlib.suppress(OSError):
                    os.kill(int(file.read_text()), signal.SIGTERM)
        wait_until(lambda: not list(temporary.glob("basket-*")), 30)


def test_ttou_keeps_the_last_web_worker(tmp_path):
    """TTOU and TTIN change the number of web workers only, which is at least 1."""
    folder = simulated_models(tmp_path, quick=QUICK)
    args = ("--threads=2", "--workers=1")
    with serving(*args, model_dir=folder, model_process="shared") as server:
        before = server.workers()
        os.kill(server.process.pid, signal.SIGTTOU)
        wait_until(lambda: "signal: ttou" in server.log.read_text(), 60)
        assert server.predict([row(1)]).status == 200
        os.kill(server.process.pid, signal.SIGTTIN)
        wait_until(lambda: len(server.workers()) == 3, 60)
        assert set(before) < set(server.workers())
        os.kill(server.process.pid, signal.SIGTTOU)
        wait_until(lambda: len(server.workers()) == 2, 60)
        assert server.predict([row(1)]).status == 200


def test_graceful_shutdown_answers_requests_under_way(tmp_path, temporary):
    """All 24 requests that were sent before SIGTERM are answered."""
    folder = simulated_models(tmp_path, slow=SLOW)
    args = ("--workers=2", "--threads=16")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(*args, model_dir=folder, **SHARED))
        clients = [stack.enter_context(Client(server.port)) for _ in range(24)]
        for number, client in enumerate(clients):
            client.send([row(number)])
        assert server.stop() == 0
        for number, client in enumerate(clients):
            assert client.receive().json() == {"predictions": [row(number)]}
    assert not list(temporary.glob("basket-*"))


def test_sigkill_of_the_master_ends_all_workers(tmp_path, temporary):
    """Each worker ends, and the sockets are removed."""
    folder = simulated_models(tmp_path, quick=QUICK)
    args = ("--workers=2", "--threads=4")
    with serving(*args, model_dir=folder, **SHARED) as server:
        pids = server.workers()
        assert list(temporary.glob("basket-*/model-*/*"))
        assert model_process(server) in pids
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(map(lives, pids)), 60)
    assert not list(temporary.glob("basket-*/model-*"))
