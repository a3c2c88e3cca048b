"""Shadow traffic of real servers: its results, and that it harms no client."""

import json
import threading
import time
from contextlib import contextmanager

import pytest

from testing.server import serving, simulated_models, wait_until

DEVICE = {"base_ms": 1, "input_shape": [4], "outputs": 2}
ALL = """
[labels]
stable = 1
canary = 2
[traffic]
stable = 1
[promotion]
shadow = "canary"
shadow_share = 1.0
"""
OFF = ALL.replace("1.0", "0")
HANG, FAIL, DIFFER = 13, 14, 15
CANARY = f"""
import threading


def predict(model, inputs):
    batch = inputs["input"]
    if {HANG} in batch:
        threading.Event().wait()
    if {FAIL} in batch:
        raise ValueError("secret")
    outputs = batch[:, :2].copy()
    outputs[batch[:, 0] == {DIFFER}] = 1, 99
    return outputs
"""
WITHIN_S = 20
PROCESSES = ("worker", "shared")


def add_model(models, name="m", device=DEVICE, canary=DEVICE, service=CANARY):
    """Write a model; by default its version 2 answers some rows otherwise."""
    simulated_models(models, **{name: device})
    (models / name / "basket.toml").write_text(ALL)
    folder = models / name / "2"
    folder.mkdir()
    if canary is not None:
        (folder / "simulated.json").write_text(json.dumps(canary))
    if service is not None:
        (folder / "service.py").write_text(service)


@contextmanager
def started(models, process="worker", workers=2, **settings):
    """Run a server whose processes have both versions of each model that has two."""
    settings |= {"model_dir": str(models), "model_process": process}
    canaries = len([*models.glob("*/2")])
    with serving(f"--workers={workers}", user_code="on", **settings) as server:
        holders = workers if process == "worker" else 1
        server.wait_until(
            lambda: (
                server.log.read_text().count("version 2 is ready (")
                == holders * canaries
            ),
            WITHIN_S,
        )
        yield server


def ask(server, *numbers, model="m"):
    """Send a request with a row for each number to the stable version."""
    instances = [[number, 1, 2, 3] for number in numbers]
    body = json.dumps({"instances": instances}).encode()
    reply = server.request("POST", f"/predict?model={model}", body)
    assert reply.headers["X-Model-Version"] == "1"
    assert reply.json()["predictions"] == [[number, 1] for number in numbers]


def rows(server, result, model="m"):
    labels = f'model="{model}",result="{result}",version="2"'
    return server.metric(f"basket_shadow_rows_total{{{labels}}}")


def all_rows(server, model="m"):
    results = ("agree", "differ", "failed", "dropped")
    return sum(rows(server, each, model) for each in results)


def requests_to(server, version, model="m"):
    labels = f'model="{model}",status="200",version="{version}"'
    return server.metric(f"basket_requests_total{{{labels}}}")


def wait_for(server, result, count, model="m"):
    wait_until(lambda: rows(server, result, model) == count, WITHIN_S, lambda: result)


@pytest.fixture(name="two_workers", scope="module", params=PROCESSES)
def _two_workers(request, tmp_path_factory):
    """A server of two models, of which `switched` has no copies, and their folder."""
    models = tmp_path_factory.mktemp("models")
    for name in ("copied", "switched"):
        add_model(models, name)
    (models / "switched" / "basket.toml").write_text(OFF)
    with started(models, request.param, request_log="-") as server:
        yield server, models


@pytest.fixture(name="one_worker", scope="module")
def _one_worker(tmp_path_factory):
    """A server of models whose shadow version is slow, missing, or code alone."""
    models = tmp_path_factory.mktemp("models")
    add_model(models, "slow", canary={**DEVICE, "base_ms": 700}, service=None)
    add_model(models, "missing", canary=None, service=None)
    (models / "missing" / "2").rmdir()
    code = "def predict(model, batch): return batch\n"
    add_model(models, "code", canary=None, service=code)
    with started(models, workers=1) as server:
        yield server


def test_copies_run_on_the_labels_version_and_no_request_is_counted(two_workers):
    """Each row is compared; the batches are counted as those of the version."""
    server, _ = two_workers
    model = "copied"
    ask(server, 1, DIFFER, 2, model=model)
    wait_for(server, "agree", 2, model)
    assert rows(server, "differ", model) == 1
    ask(server, FAIL, model=model)
    wait_for(server, "failed", 1, model)
    for _ in range(4):
        before = rows(server, "agree", model)
        ask(server, 3, model=model)
        wait_for(server, "agree", before + 1, model)
    wait_until(lambda: requests_to(server, 1, model) == 6, WITHIN_S)
    assert requests_to(server, 2, model) == 0
    counted = f'basket_infer_seconds_count{{model="{model}",version="2"}}'
    wait_until(lambda: server.metric(counted) >= 6, WITHIN_S)
    lines = [
        line
        for line in map(json.loads, _requests_in(server.log.read_text()))
        if line["model"] == model
    ]
    assert len(lines) <= 6
    assert not [line for line in lines if line["version"] == 2]


def _requests_in(log):
    """Return the lines of requests to models."""
    lines = log.splitlines()
    return [line for line in lines if line.startswith("{") and '"model"' in line]


@pytest.mark.parametrize("process", PROCESSES)
def test_shadow_version_that_hangs_harms_no_client(tmp_path, process):
    """Copies rest after it, the server stays healthy, and SIGTERM ends it."""
    add_model(tmp_path)
    with started(tmp_path, process, request_timeout_ms="1000") as server:
        workers = server.workers()
        ask(server, HANG)
        wait_for(server, "failed", 1)
        for number in range(20):
            ask(server, number % 10)
        # Longer than the request timeout, and than the notes on stuck models take.
        healthy_until = time.monotonic() + 3
        while time.monotonic() < healthy_until:
            ask(server, 1)
            assert server.request("GET", "/healthz").status == 200
        assert server.workers() == workers
        assert rows(server, "failed") == 1
        began_at = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began_at < 8


def test_slow_shadow_version_harms_no_client(one_worker):
    """Requests take no longer than without, and copies run now and then."""
    began_at = time.monotonic()
    for number in range(50):
        ask(one_worker, number, model="slow")
    assert time.monotonic() - began_at < 25 * 0.7
    wait_until(lambda: rows(one_worker, "agree", "slow") > 0, WITHIN_S)
    assert all_rows(one_worker, "slow") <= 50


@pytest.mark.parametrize("process", PROCESSES)
def test_copies_are_dropped_under_load(tmp_path, process):
    """Every request is answered, and none has two copies."""
    stable, canary = ({**DEVICE, "base_ms": base_ms} for base_ms in (20, 50))
    add_model(tmp_path, device=stable, canary=canary, service=None)
    with started(tmp_path, process, workers=1, max_batch_size="4") as server:
        until = time.monotonic() + 2
        asked = []

        def client():
            while time.monotonic() < until:
                ask(server, 1)
                asked.append(1)

        clients = [threading.Thread(target=client) for _ in range(8)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        wait_until(lambda: rows(server, "dropped") > 0, WITHIN_S)
        assert all_rows(server) <= len(asked)


def test_shadow_is_turned_on_and_off_without_a_restart(two_workers):
    """In all workers; no version is loaded again."""
    server, models = two_workers
    model = "switched"
    loaded = server.log.read_text().count("is ready (")
    for number in range(6):
        ask(server, number, model=model)
    for text in (ALL, OFF):
        (models / model / "basket.toml").write_text(text)

        def follows(is_on=text == ALL):
            before = all_rows(server, model)
            for number in range(6):
                ask(server, number, model=model)
            # Longer than copies wait.
            time.sleep(0.5)
            return all_rows(server, model) - before == (6 if is_on else 0)

        server.wait_until(follows, WITHIN_S)
    assert server.log.read_text().count("is ready (") == loaded


def _problems(server, model):
    return server.request("GET", "/readyz").json().get("problems", {}).get(model)


def test_label_without_a_loaded_version_gets_no_copies(one_worker):
    """Requests are answered, and nothing is counted."""
    ask(one_worker, 1, model="missing")
    assert all_rows(one_worker, "missing") == 0
    expected = ["label canary names version 2, and there is none"]
    assert _problems(one_worker, "missing") == expected


def test_version_without_tensors_is_a_problem(one_worker):
    """It serves, gets no copies, and /readyz says why."""
    ask(one_worker, 1, model="code")
    text = "has no effect on version 2: its service.py takes instances as they are"
    wait_until(lambda: text in str(_problems(one_worker, "code")), WITHIN_S)
