"""Going down and coming back: SIGTERM, recycling, and workers that are killed."""

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from tests.support.clients import Client, in_parallel
from tests.support.server import (
    PROGRAMS,
    lives,
    metric_sum,
    serving,
    simulated_models,
    threads,
    wait_until,
)

SLOW = {"base_ms": 300, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
QUICK = {**SLOW, "base_ms": 1}


def test_a_killed_worker_takes_only_its_own_requests(tmp_path):
    """After kill -9 of one of two workers the other answers and a third replaces it."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving("--threads=4", "--workers=2", model_dir=folder) as server:
        wait_until(lambda: len(server.workers()) == 2, 10)
        before = server.workers()
        server.predict([[0.0] * 8])
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(server.workers()) - set(before)) == 1, 30)
        server.wait_until_ready()
        assert server.predict([[1.0] * 8]).status == 200
        assert metric_sum(server, "basket_requests_total") == 2


def test_workers_leave_the_port_to_the_next_master(tmp_path):
    """After kill -9 of the master nobody is lost, and busy clients hold up nothing."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with (
        serving("--threads=4", model_dir=folder) as server,
        Client(server.port) as busy,
    ):
        (orphan,) = server.workers()

        def is_told_to_close():
            busy.send([[1.0] * 8])
            reply = busy.receive()
            assert reply.status == 200
            return reply.headers["Connection"] == "close"

        assert not is_told_to_close()
        server.process.kill()
        wait_until(is_told_to_close, 10)
        wait_until(lambda: not lives(orphan), 10)


def test_a_worker_is_killed_while_the_folder_of_models_is_away(tmp_path):
    """The other one answers on, and a third takes its place when the folder is back."""
    models, away = tmp_path / "models", tmp_path / "away"
    folder = simulated_models(models, quick=QUICK)
    with serving("--threads=4", "--workers=2", model_dir=folder) as server:
        wait_until(lambda: server.loaded() == 2, 10)
        models.rename(away)
        os.kill(server.workers()[0], signal.SIGKILL)
        wait_until(lambda: f"waits for {folder}" in server.log.read_text(), 10)
        assert server.predict([[1.0] * 8]).status == 200
        away.rename(models)
        wait_until(lambda: server.loaded() == 3, 10)
        assert len(server.workers()) == 2
        assert server.predict([[1.0] * 8]).status == 200


@pytest.mark.parametrize("program", PROGRAMS)
def test_sigterm_answers_all_that_is_in_flight(tmp_path, program):
    """SIGTERM right after 50 clients sent a request ends in 50 answers and exit 0."""
    folder = simulated_models(tmp_path, slow=SLOW)
    starting = serving(*threads(program, 20), program=program, model_dir=folder)
    with ExitStack() as stack:
        server = stack.enter_context(starting)
        clients = [stack.enter_context(Client(server.port)) for _ in range(50)]
        for n, client in enumerate(clients):
            client.send([[float(n)] * 8])
        assert server.stop() == 0
        for n, client in enumerate(clients):
            assert client.receive().json() == {"predictions": [[float(n)] * 8]}


@pytest.mark.parametrize(
    ("program", "limit"),
    [("gunicorn", "--graceful-timeout=3"), ("granian", "--workers-kill-timeout=4")],
    ids=PROGRAMS,
)
def test_what_cannot_finish_in_time_is_told_so(tmp_path, program, limit):
    """A request that outlasts the graceful timeout gets 503 before the worker goes."""
    endless = {**SLOW, "base_ms": 5000}
    settings = {
        "model_dir": simulated_models(tmp_path, endless=endless),
        "max_batch_size": "1",
    }
    with (
        serving(*threads(program, 2), limit, program=program, **settings) as server,
        Client(server.port) as client,
    ):
        client.send([[0.0] * 8])
        assert server.stop() == 0
        reply = client.receive()
        assert reply.status == 503
        assert reply.json() == {"error": "the server is stopping"}


def test_an_idle_connection_does_not_delay_the_stop(tmp_path):
    """A client that keeps an idle connection open does not hold up SIGTERM."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with (
        serving("--threads=4", model_dir=folder) as server,
        Client(server.port) as client,
    ):
        client.send([[0.0] * 8])
        assert client.receive().status == 200
        began_at = time.monotonic()
        assert server.stop() == 0
        # Without help Gunicorn waits for its whole graceful timeout of 30 s.
        assert time.monotonic() - began_at < 20


def test_whoever_was_told_to_send_again_is_answered(tmp_path):
    """While HUPs replace the worker no kept connection is closed under its client."""
    folder = simulated_models(tmp_path, quick=QUICK)
    reloaded = threading.Event()
    with serving("--threads=8", model_dir=folder) as server:

        def work(place):
            while not reloaded.is_set():
                with Client(server.port) as client:
                    keeps = True
                    while keeps and not reloaded.is_set():
                        client.send([[float(place)] * 8])
                        reply = client.receive()
                        assert reply.json() == {"predictions": [[float(place)] * 8]}
                        keeps = reply.headers["Connection"] != "close"

        def reload(place):
            del place
            try:
                for _ in range(4):
                    gone = set(server.workers()).isdisjoint
                    server.process.send_signal(signal.SIGHUP)
                    wait_until(lambda gone=gone: gone(server.workers()), 30)
            finally:
                reloaded.set()

        in_parallel(lambda place: work(place) if place else reload(place), 9)


@pytest.fixture
def held_until(tmp_path, monkeypatch):
    """A file that is there; while it is not, no model is loaded by `_held`'s server."""
    file = tmp_path / "go"
    file.touch()
    monkeypatch.setenv("HELD_UNTIL", str(file))
    return file


def _held(held_until, *args):
    folder = simulated_models(held_until.parent / "models", quick=QUICK)
    app = "tests.support.held:app"
    return serving("--threads=8", *args, app=app, model_dir=folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_waits_for_new_workers_to_load(held_until, workers):
    """After a HUP the old workers answer until the new ones have their models."""
    with _held(held_until, f"--workers={workers}") as server:
        before = set(server.workers())
        held_until.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(set(server.workers()) - before) == workers, 30)
        for number in range(20):
            assert server.predict([[float(number)] * 8]).status == 200
        assert before <= set(server.workers())
        held_until.touch()
        wait_until(lambda: before.isdisjoint(server.workers()), 30)
        assert server.predict([[1.0] * 8]).status == 200


def test_a_master_that_takes_over_loses_nobody(held_until, tmp_path):
    """USR2's workers listen with their models, and count on alone, after a HUP too."""
    pid = tmp_path / "pid"
    with _held(held_until, f"--pid={pid}") as server:
        before = set(server.workers())
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: before.isdisjoint(server.workers()), 30)
        held_until.unlink()
        loads = server.log.read_text().count("loading model")
        server.process.send_signal(signal.SIGUSR2)
        try:
            wait_until(
                lambda: server.log.read_text().count("loading model") > loads, 30
            )
            for number in range(40):
                assert server.predict([[float(number)] * 8]).status == 200
            held_until.touch()
            wait_until(lambda: server.loaded() == loads + 1, 30)
            assert server.stop() == 0
            assert server.predict([[1.0] * 8]).status == 200
            assert metric_sum(server, "basket_requests_total") == 1
        finally:
            for file in (pid, tmp_path / "pid.2"):
                with suppress(OSError):
                    os.kill(int(file.read_text()), signal.SIGTERM)
        wait_until(lambda: not pid.exists(), 30)


def test_an_old_worker_that_ends_takes_no_other_with_it(held_until):
    """Of two old workers the second answers, until the new ones have their models."""
    with _held(held_until, "--workers=2") as server:
        before = server.workers()
        held_until.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(set(server.workers()) - set(before)) == 2, 30)
        os.kill(before[0], signal.SIGKILL)
        # For longer than the master takes to notice.
        for number in range(200):
            assert server.predict([[float(number)] * 8]).status == 200
        assert before[1] in server.workers()
        held_until.touch()
        wait_until(lambda: set(before).isdisjoint(server.workers()), 30)
        assert len(server.workers()) == 2
        assert server.predict([[1.0] * 8]).status == 200


def test_a_stop_is_not_kept_by_workers_that_load(held_until):
    """SIGTERM ends a server whose new workers will never have loaded their models."""
    with _held(held_until) as server:
        before = set(server.workers())
        held_until.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: set(server.workers()) - before, 30)
        assert server.stop() == 0


def test_recycled_workers_lose_nothing(tmp_path, monkeypatch):
    """While --max-requests=25 replaces workers each of 400 requests is answered."""
    folder = simulated_models(tmp_path / "models", quick=QUICK)
    counts = tmp_path / "counts"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(counts))
    arguments = ("--threads=8", "--workers=2", "--max-requests=25")
    with serving(*arguments, model_dir=folder) as server:
        seen = set()

        def work(place):
            for number in range(50):
                with Client(server.port) as client:
                    client.send([[float(place * 50 + number)] * 8])
                    reply = client.receive()
                assert reply.status == 200, reply.body
                assert reply.json() == {
                    "predictions": [[float(place * 50 + number)] * 8]
                }
                seen.update(server.workers())

        in_parallel(work, 8)
        assert len(seen) > 10
        assert metric_sum(server, "basket_requests_total") == 400
        # Those of the dead in one, and of whoever has ended since.
        assert len(list(counts.glob("counter_*.db"))) <= 5


def test_clients_that_are_slow_to_close_hold_up_nobody(tmp_path):
    """Ten answered clients that leave their connection open do not delay the next."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with ExitStack() as stack:
        server = stack.enter_context(serving("--threads=4", model_dir=folder))
        address = ("127.0.0.1", server.port)
        clients = [
            stack.enter_context(socket.create_connection(address)) for _ in range(10)
        ]
        for client in clients:
            client.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 200"
        # Gunicorn's own worker would first wait 2 s for each of them.
        assert server.request("GET", "/healthz", timeout_s=10).status == 200
