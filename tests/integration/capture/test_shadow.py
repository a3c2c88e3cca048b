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
PROCESSES = pytest.mark.parametrize("process", ["worker", "shared"])


@pytest.fixture(name="models")
def _models(tmp_path):
    """A folder with the model m, whose version 2 answers some rows otherwise."""
    simulated_models(tmp_path, m=DEVICE)
    add_canary(tmp_path, DEVICE, CANARY)
    (tmp_path / "m" / "basket.toml").write_text(ALL)
    return tmp_path


def add_canary(models, device, service=None):
    folder = models / "m" / "2"
    folder.mkdir(exist_ok=True)
    (folder / "simulated.json").write_text(json.dumps(device))
    if service is not None:
        (folder / "service.py").write_text(service)


@contextmanager
def started(models, process, workers=2, **settings):
    """Run a server whose processes have both versions."""
    settings |= {"model_dir": str(models), "model_process": process}
    with serving(f"--workers={workers}", user_code="on", **settings) as server:
        holders = workers if process == "worker" else 1
        server.wait_until(
            lambda: server.log.read_text().count("version 2 is ready (") == holders,
            WITHIN_S,
        )
        yield server


def ask(server, *numbers):
    """Send a request with a row for each number to the stable version."""
    reply = server.predict([[number, 1, 2, 3] for number in numbers])
    assert reply.headers["X-Model-Version"] == "1"
    assert reply.json()["predictions"] == [[number, 1] for number in numbers]


def rows(server, result):
    labels = f'model="m",result="{result}",version="2"'
    return server.metric(f"basket_shadow_rows_total{{{labels}}}")


def all_rows(server):
    return sum(rows(server, each) for each in ("agree", "differ", "failed", "dropped"))


def requests_to(server, version):
    labels = f'model="m",status="200",version="{version}"'
    return server.metric(f"basket_requests_total{{{labels}}}")


def wait_for(server, result, count):
    wait_until(lambda: rows(server, result) == count, WITHIN_S, lambda: result)


@PROCESSES
def test_copies_run_on_the_labels_version_and_no_request_is_counted(models, process):
    """Each row is compared; the batches are counted as those of the version."""
    with started(models, process, request_log="-") as server:
        ask(server, 1, DIFFER, 2)
        wait_for(server, "agree", 2)
        assert rows(server, "differ") == 1
        ask(server, FAIL)
        wait_for(server, "failed", 1)
        for _ in range(4):
            before = rows(server, "agree")
            ask(server, 3)
            wait_for(server, "agree", before + 1)
        wait_until(lambda: requests_to(server, 1) == 6, WITHIN_S)
        assert requests_to(server, 2) == 0
        counted = 'basket_infer_seconds_count{model="m",version="2"}'
        wait_until(lambda: server.metric(counted) >= 6, WITHIN_S)
        lines = [
            line
            for line in server.log.read_text().splitlines()
            if line.startswith("{") and '"model"' in line
        ]
    assert len(lines) <= 6
    assert not [line for line in lines if json.loads(line)["version"] == 2]


@PROCESSES
def test_shadow_version_that_hangs_harms_no_client(models, process):
    """Copies rest after it, the server stays healthy, and SIGTERM ends it."""
    with started(models, process, request_timeout_ms="1000") as server:
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


def test_slow_shadow_version_harms_no_client(models):
    """Requests take no longer than without, and copies run now and then."""
    (models / "m" / "2" / "service.py").unlink()
    add_canary(models, {**DEVICE, "base_ms": 700})
    with started(models, "worker", workers=1) as server:
        began_at = time.monotonic()
        for number in range(50):
            ask(server, number)
        assert time.monotonic() - began_at < 25 * 0.7
        wait_until(lambda: rows(server, "agree") > 0, WITHIN_S)
        assert all_rows(server) <= 50


@PROCESSES
def test_copies_are_dropped_under_load(models, process):
    """Every request is answered, and none has two copies."""
    device = {**DEVICE, "base_ms": 20}
    (models / "m" / "1" / "simulated.json").write_text(json.dumps(device))
    (models / "m" / "2" / "service.py").unlink()
    add_canary(models, {**device, "base_ms": 50})
    with started(models, process, workers=1, max_batch_size="4") as server:
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


@PROCESSES
def test_shadow_is_turned_on_and_off_without_a_restart(models, process):
    """In all workers; no version is loaded again."""
    config = models / "m" / "basket.toml"
    off = ALL.replace("1.0", "0")
    config.write_text(off)
    with started(models, process) as server:
        loaded = server.log.read_text().count("is ready (")
        for number in range(6):
            ask(server, number)
        for text in (ALL, off):
            config.write_text(text)

            def follows(is_on=text == ALL):
                before = all_rows(server)
                for number in range(6):
                    ask(server, number)
                # Longer than copies wait.
                time.sleep(0.5)
                return all_rows(server) - before == (6 if is_on else 0)

            server.wait_until(follows, WITHIN_S)
        assert server.log.read_text().count("is ready (") == loaded


def test_label_without_a_loaded_version_gets_no_copies(models):
    """Requests are answered, and nothing is counted."""
    for file in (models / "m" / "2").iterdir():
        file.unlink()
    (models / "m" / "2").rmdir()
    with serving(model_dir=str(models)) as server:
        ask(server, 1)
        assert all_rows(server) == 0
        problems = server.request("GET", "/readyz").json()["problems"]["m"]
        assert problems == ["label canary names version 2, and there is none"]


def test_version_without_tensors_is_a_problem(models):
    """It serves, gets no copies, and /readyz says why."""
    folder = models / "m" / "2"
    (folder / "simulated.json").unlink()
    (folder / "service.py").write_text("def predict(model, batch): return batch\n")
    with started(models, "worker", workers=1) as server:
        ask(server, 1)

        def problems():
            return server.request("GET", "/readyz").json().get("problems", {})

        text = "has no effect on version 2: its service.py takes instances as they are"
        wait_until(lambda: text in str(problems()), WITHIN_S)
