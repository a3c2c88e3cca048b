"""GET /page/state of real servers: several workers, a shared model, other servers."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from testing.clients import Client, in_parallel
from testing.server import (
    ROOT,
    free_port,
    installed,
    metric_sum,
    running,
    serving,
    simulated_models,
)

STEADY = {"base_ms": 20, "per_row_ms": 0, "input_shape": [4], "outputs": 4}
ROW = [1.0, 2.0, 3.0, 4.0]
TWO = ("--threads=8", "--workers=2")


@pytest.fixture(name="models")
def _models(tmp_path):
    return simulated_models(tmp_path, steady=STEADY)


@pytest.fixture(name="two_workers", scope="module")
def _two_workers(tmp_path_factory):
    """A server for tests that leave its workers alive."""
    folder = tmp_path_factory.mktemp("models")
    with serving(*TWO, model_dir=simulated_models(folder, steady=STEADY)) as server:
        yield server


def state_of(server):
    return server.request("GET", "/page/state").json()


def samples_of(server):
    return state_of(server)["samples"]


def wait_for_samples(server, more_than=0):
    """Wait until there are more samples than these, and return them."""
    server.wait_until(lambda: len(samples_of(server)) > more_than, 60)
    return samples_of(server)


def wait_until_idle(server):
    """Wait until the last sample is of a second in which nothing was answered."""
    seen = samples_of(server)[-1]["n"]

    def is_idle():
        last = samples_of(server)[-1]
        return last["n"] > seen and not last["models"]["steady"]["status"]

    server.wait_until(is_idle, 60)
    return state_of(server)


def ask(server, requests, clients=8):
    """Have clients send rows, each on new connections, so that all workers get some."""

    def work(place):
        for _ in range(requests // clients):
            with Client(server.port) as client:
                client.send([ROW])
                assert client.receive().status == 200

    in_parallel(work, clients)


def answered(samples):
    """Return how many requests samples have, from their rates."""
    return sum(
        sample["models"]["steady"]["status"].get("200", 0) * (sample["t"] - before["t"])
        for before, sample in pairwise(samples)
    )


def holds_lock(pid):
    """Return whether a worker has the file open that the sampling one has locked."""
    for file in Path(f"/proc/{pid}/fd").iterdir():
        # The worker may close one meanwhile.
        with suppress(FileNotFoundError):
            if file.readlink().name == "sampler":
                return True
    return False


def sampling_worker(server):
    (holder,) = filter(holds_lock, server.workers())
    return holder


@contextmanager
def stopped(pid):
    """Stop a worker for the block: others answer meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_two_workers_answer_with_the_same_samples(two_workers):
    """While either worker is stopped, the other answers, and they agree."""
    server = two_workers
    ask(server, 16)
    wait_for_samples(server, 1)
    answers = []
    for worker in server.workers():
        with stopped(worker):
            answers.append({each["n"]: each for each in samples_of(server)})
    first, second = answers
    common = first.keys() & second.keys()
    assert len(common) >= 2
    assert all(first[number] == second[number] for number in common)


def test_samples_go_on_when_the_sampling_worker_is_killed(models):
    """After kill -9 another worker samples; what was before is kept."""
    with serving(*TWO, model_dir=models) as server:
        before = wait_for_samples(server, 1)
        killed = sampling_worker(server)
        os.kill(killed, signal.SIGKILL)
        server.wait_until(lambda: state_of(server)["restarts"] == 1, 60)
        wait_for_samples(server, len(before) + 1)
        state = state_of(server)
        assert state["samples"][: len(before)] == before
        assert sampling_worker(server) != killed
        pids = {each["pid"] for each in state["processes"]}
        assert killed not in pids
        assert server.process.pid in pids


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, {"master": 1, "worker": 2}),
        ({"model_process": "shared"}, {"master": 1, "worker": 2, "model process": 1}),
        ({"batching": "off"}, {"master": 1, "worker": 2}),
    ],
    ids=["each worker", "shared", "no batching"],
)
def test_samples_agree_with_metrics_after_a_load(models, settings, kinds):
    """Requests, seconds in the engine and rows are those of /metrics within 5 %."""
    with serving(*TWO, model_dir=models, **settings) as server:
        wait_for_samples(server)
        ask(server, 400)
        state = wait_until_idle(server)
        busy_s = stages_s = 0.0
        for before, sample in pairwise(state["samples"]):
            model, seconds = sample["models"]["steady"], sample["t"] - before["t"]
            busy_s += model["busy"] * seconds
            if model["status"]:
                # Each request takes 20 ms in the engine, and may wait for a batch.
                assert 10 < model["p50_ms"] <= model["p95_ms"] <= model["p99_ms"]
                answers = model["status"]["200"] * seconds
                stages_s += sum(model["stages_ms"].values()) / 1000 * answers
                # A model process may count a batch a second after its answers.
                assert (model["batch_rows"] or 1) >= 1
        engines = kinds.get("model process", kinds["worker"])
        infer_s = metric_sum(server, "basket_infer_seconds_sum") / engines
        assert metric_sum(server, "basket_requests_total") == 400
        assert answered(state["samples"]) == pytest.approx(400, rel=0.05)
        assert busy_s == pytest.approx(infer_s, rel=0.05)
        all_stages_s = metric_sum(server, "basket_stage_seconds_total")
        assert stages_s == pytest.approx(all_stages_s, rel=0.05)
        assert Counter(each["kind"] for each in state["processes"]) == kinds
        own_mib = sum(each["own_mib"] for each in state["processes"])
        shared_mib = [
            each["memory_mib"] - each["own_mib"] for each in state["processes"]
        ]
        sampled_mib = state["samples"][-1]["memory_mib"]
        assert sampled_mib == pytest.approx(own_mib + max(shared_mib), rel=0.05)


def test_samples_lose_no_request_while_workers_are_replaced(models):
    """The next sampling worker continues from the last sample of the one before."""
    with serving(*TWO, "--max-requests=40", model_dir=models) as server:
        wait_for_samples(server)
        ask(server, 400)
        state = wait_until_idle(server)
        assert state["restarts"] > 4
        assert answered(state["samples"]) == pytest.approx(400, rel=0.05)


def test_errors_of_both_workers_are_listed_by_each(two_workers):
    """A worker knows the errors of the other within about a second."""
    server = two_workers
    workers = server.workers()
    for worker in workers:
        with stopped(worker):
            path = f"/predict?model=none{worker}"
            assert server.request("POST", path, b'{"instances": [1]}').status == 404
    # Each worker has flushed its errors between two samples.
    wait_for_samples(server, len(samples_of(server)) + 2)
    for worker in workers:
        with stopped(worker):
            texts = " ".join(each["text"] for each in state_of(server)["errors"])
        assert all(f"none{each}" in texts for each in workers)


def test_uvicorn_keeps_samples_in_memory(models):
    """Without a run directory the process has its own samples."""
    port = free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}"]
    with running(
        command, port, ready=False, check_exit=False, model_dir=models
    ) as server:
        server.wait_until_ready(0)
        assert server.predict([ROW]).status == 200
        wait_for_samples(server)
        (process,) = state_of(server)["processes"]
        assert (process["pid"], process["kind"]) == (server.process.pid, "worker")


def test_commands_do_not_sample(models):
    """`flask --app wsgi ...` imports the application without a thread."""
    program = "import threading, wsgi; print([t.name for t in threading.enumerate()])"
    environment = {"FLASK_RUN_FROM_CLI": "true", "BASKET_MODEL_DIR": models}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "['MainThread']\n"
