"""Graceful shutdown, reload, recycling, and workers that are killed."""

import os
import signal
import threading
from contextlib import ExitStack, suppress

import pytest

from testing.clients import Client, in_parallel
from testing.server import (
    lives,
    metric_sum,
    serving,
    simulated_models,
    wait_for_metric,
    wait_until,
)

SLOW = {"base_ms": 300, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
QUICK = {**SLOW, "base_ms": 1}


def test_killed_worker_is_replaced_while_its_sibling_answers(tmp_path):
    """After kill -9 of one of two workers the other answers and a third replaces it."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving("--threads=4", "--workers=2", model_dir=folder) as server:
        wait_until(lambda: len(server.workers()) == 2, 60)
        before = server.workers()
        server.predict([[0.0] * 8])
        # The last records of a killed worker may be lost.
        wait_for_metric(server, "basket_requests_total", 1)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(set(server.workers()) - set(before)) == 1, 30)
        server.wait_until_ready()
        assert server.predict([[1.0] * 8]).status == 200
        wait_for_metric(server, "basket_requests_total", 2)


def test_worker_of_a_killed_master_drains_and_ends(tmp_path):
    """After kill -9 of the master each request is answered, and the worker ends."""
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
        wait_until(is_told_to_close, 60)
        wait_until(lambda: not lives(orphan), 60)


@pytest.mark.parametrize("setting", ["model_dir", "model"])
def test_killed_worker_is_replaced_once_the_model_folder_is_back(tmp_path, setting):
    """Without the folder the sibling answers alone; with it a third worker comes."""
    models, away = tmp_path / "models", tmp_path / "away"
    folder = simulated_models(models, quick=QUICK)
    if setting == "model":
        folder = f"{folder}/quick/1"
    with serving("--threads=4", "--workers=2", **{setting: folder}) as server:
        wait_until(lambda: server.loaded() == 2, 60)
        models.rename(away)
        os.kill(server.workers()[0], signal.SIGKILL)
        wait_until(lambda: f"waits for {folder}" in server.log.read_text(), 60)
        assert server.predict([[1.0] * 8]).status == 200
        away.rename(models)
        wait_until(lambda: server.loaded() == 3, 60)
        assert len(server.workers()) == 2
        assert server.predict([[1.0] * 8]).status == 200


def test_lone_worker_is_replaced_once_the_model_folder_is_back(tmp_path):
    """Clients wait in the backlog until then, and the server does not end."""
    models, away = tmp_path / "models", tmp_path / "away"
    folder = simulated_models(models, quick=QUICK)
    with serving("--threads=4", model_dir=folder) as server:
        models.rename(away)
        os.kill(server.workers()[0], signal.SIGKILL)
        wait_until(lambda: f"waits for {folder}" in server.log.read_text(), 60)
        with Client(server.port) as client:
            client.send([[1.0] * 8])
            away.rename(models)
            assert client.receive().status == 200


def test_sigterm_answers_all_requests_in_flight(tmp_path):
    """SIGTERM right after 50 clients sent a request ends in 50 answers and exit 0."""
    folder = simulated_models(tmp_path, slow=SLOW)
    with ExitStack() as stack:
        server = stack.enter_context(serving("--threads=20", model_dir=folder))
        clients = [stack.enter_context(Client(server.port)) for _ in range(50)]
        for n, client in enumerate(clients):
            client.send([[float(n)] * 8])
        assert server.stop() == 0
        for n, client in enumerate(clients):
            assert client.receive().json() == {"predictions": [[float(n)] * 8]}


def test_request_that_outlasts_the_graceful_timeout_gets_503(tmp_path):
    """A request that outlasts the graceful timeout gets 503 before the worker goes."""
    endless = {**SLOW, "base_ms": 5000}
    settings = {
        "model_dir": simulated_models(tmp_path, endless=endless),
        "max_batch_size": "1",
    }
    with (
        serving("--threads=2", "--graceful-timeout=3", **settings) as server,
        Client(server.port) as client,
    ):
        client.send([[0.0] * 8])
        assert server.stop() == 0
        reply = client.receive()
        assert reply.status == 503
        assert reply.json() == {"error": "the server is stopping"}


def test_sighup_answers_every_request_on_keep_alive_connections(tmp_path):
    """While HUPs replace the worker no connection closes that was said to be kept."""
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
    """Return a file that exists; without it, the server of `_held` loads no model."""
    file = tmp_path / "go"
    file.touch()
    monkeypatch.setenv("HELD_UNTIL", str(file))
    return file


def _held(held_until, *args):
    folder = simulated_models(held_until.parent / "models", quick=QUICK)
    app = "tests.support.held:app"
    return serving("--threads=8", *args, app=app, model_dir=folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_keeps_old_workers_until_new_ones_have_models(held_until, workers):
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


def test_sigusr2_loses_no_request(held_until, tmp_path, monkeypatch):
    """The new master's workers listen once they have models, after a HUP too.

    They share a folder of their own, which goes with their master.
    """
    pid, temporary = tmp_path / "pid", tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
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
            assert len(list(temporary.glob("basket-*"))) == 2
            assert server.stop() == 0
            assert len(list(temporary.glob("basket-*"))) == 1
            assert server.predict([[1.0] * 8]).status == 200
            assert metric_sum(server, "basket_requests_total") == 1
        finally:
            for file in (pid, tmp_path / "pid.2"):
                with suppress(OSError):
                    os.kill(int(file.read_text()), signal.SIGTERM)
        wait_until(lambda: not pid.exists(), 30)
        wait_until(lambda: not list(temporary.glob("basket-*")), 30)


def test_old_worker_killed_during_sighup_leaves_the_other(held_until):
    """Of two old workers the second answers until the new ones have their models."""
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


def test_sigterm_ends_a_server_whose_new_workers_still_load(held_until):
    """SIGTERM after a HUP does not wait for models."""
    with _held(held_until) as server:
        before = set(server.workers())
        held_until.unlink()
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: set(server.workers()) - before, 30)
        assert server.stop() == 0


def test_max_requests_loses_no_request(tmp_path, monkeypatch):
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
        wait_for_metric(server, "basket_requests_total", 400)
        # One for all dead workers, and those of workers that have ended since.
        assert len(list(counts.glob("counter_*.db"))) <= 5
