"""Capture and the request log of real servers: workers, kills, full disks."""

import itertools
import json
import os
import resource
import signal
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest

from app.capture.reader import read_captured
from testing.server import metric_sum, serving, simulated_models, wait_until

DEVICE = {"base_ms": 1, "input_shape": [4], "outputs": 2}
ALL = "[capture]\nshare = 1.0\n"
WITHIN_S = 20


@pytest.fixture(name="models")
def _models(tmp_path):
    """A folder with the simulated model m, of which all requests are captured."""
    simulated_models(tmp_path / "models", m=DEVICE)
    (tmp_path / "models" / "m" / "basket.toml").write_text(ALL)
    return tmp_path / "models"


@pytest.fixture(name="settings")
def _settings(models):
    """Settings of a server with that model."""
    root = models.parent
    return {
        "model_dir": str(models),
        "capture_dir": str(root / "captured"),
        "request_log": str(root / "requests.jsonl"),
    }


def captured(models):
    """Return the first input value of each captured request, with its id."""
    folder = models.parent / "captured" / "m"
    found = []
    for group in read_captured(folder).groups if folder.exists() else ():
        assert group.outputs["output"].tolist() == group.inputs["input"][:, :2].tolist()
        values = [int(group.inputs["input"][rows][0, 0]) for rows in group.slices()]
        ids = [each.decode() for each in group.columns["request_id"].tolist()]
        found += zip(values, ids, strict=True)
    return found


def values(models):
    """Return the first input values of captured requests."""
    return {value for value, _ in captured(models)}


def logged(models):
    file = models.parent / "requests.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def ask(server, numbers, **headers):
    """Send a request for each number, and return the ids of the answers."""
    ids = []
    for number in numbers:
        reply = server.predict([[number, 1, 2, 3]] * (1 + number % 3), headers)
        assert reply.json()["predictions"][0] == [number, 1]
        ids.append(reply.headers["X-Request-Id"])
    return ids


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_all_workers_capture_and_log_each_request(models, settings, process):
    """Two workers, and their shared model: nothing is lost, and no id is used twice."""
    with serving("--workers=2", model_process=process, **settings) as server:
        ids = ask(server, range(60))
    assert len(set(ids)) == 60
    assert sorted(captured(models)) == sorted(zip(range(60), ids, strict=True))
    lines = logged(models)
    assert Counter(each["request_id"] for each in lines) == Counter(ids)
    assert {each["rows"] for each in lines} == {1, 2, 3}
    assert {each["model"] for each in lines} == {"m"}


def test_capture_is_turned_on_and_off_without_a_restart(models, settings):
    """The version is not loaded again, and workers follow the shared model."""
    config = models / "m" / "basket.toml"
    config.unlink()
    with serving("--workers=2", model_process="shared", **settings) as server:
        ask(server, range(4))
        numbers = itertools.count(10)

        def captures():
            """Return whether new requests are written and counted, which takes 2 s."""
            number, before = next(numbers), metric_sum(server, "basket_captured_total")
            ask(server, [number] * 6)
            wait_until(lambda: len(logged(models)) >= 4, WITHIN_S)

            def seen():
                is_counted = metric_sum(server, "basket_captured_total") > before
                return {number in values(models), is_counted}

            with suppress(AssertionError):
                wait_until(lambda: seen() == {True}, 4)
            return seen()

        config.write_text(ALL)
        wait_until(lambda: captures() == {True}, WITHIN_S)
        config.write_text("[capture]\nshare = 0\n")
        wait_until(lambda: captures() == {False}, WITHIN_S)
        last = next(numbers)
        ask(server, [last] * 6)
        assert server.log.read_text().count("loading model m") == 1
    # A server that has stopped has written all.
    assert not {0, last} & values(models)


def test_kill_loses_at_most_the_last_block(models, settings):
    """What was written before is read, and the worker that follows writes on."""
    with serving(**settings) as server:
        ask(server, range(5))
        wait_until(lambda: len(captured(models)) == 5, WITHIN_S)
        (worker,) = server.workers()
        ask(server, [50])
        os.kill(worker, signal.SIGKILL)
        # As if it had been killed in the middle of a write.
        folder = models.parent / "captured" / "m"
        (number, *_) = sorted(folder.glob("*.npz"), reverse=True)
        partial = folder / f"{int(number.stem) + 1:012}.partial"
        partial.write_bytes(number.read_bytes()[:300])
        wait_until(lambda: server.workers() not in ([], [worker]), WITHIN_S)
        server.wait_until_ready(workers=2)
        ask(server, [60])
    assert {0, 1, 2, 3, 4, 60} <= values(models)
    assert any("killed" in note for note in read_captured(folder).notes)


def test_full_disk_hurts_no_request(models, settings):
    """It is logged once and counted; a limit on the size of files stands for it."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = models.parent / "requests.jsonl"
    # The server's own log is below the limit, a block is not.
    log.write_bytes(b"x" * 40_000)
    wide = {"base_ms": 1, "input_shape": [30_000], "outputs": 2}
    simulated_models(models, wide=wide)
    (models / "wide" / "basket.toml").write_text(ALL)
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(models.parent / "metrics")}
    settings |= {"default_model": "wide"}
    with serving(ready=False, environ=environ, **settings) as server:
        server.wait_until_ready(workers=2)
        (worker,) = server.workers()
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (40_000, limit[1]))
        rows = np.zeros((1, 30_000)).tolist()
        name = 'basket_captured_total{model="wide",result="failed"}'
        for failed in range(1, 4):
            assert server.predict(rows).status == 200
            wait_until(lambda wanted=failed: server.metric(name) == wanted, WITHIN_S)
        text = server.log.read_text()
        assert text.count("model wide: requests are not captured: ") == 1
        assert "File too large" in text
        assert text.count(f"BASKET_REQUEST_LOG={log}: File too large") == 1
        assert metric_sum(server, "basket_request_log_dropped_total") == 3
        resource.prlimit(worker, resource.RLIMIT_FSIZE, limit)
        assert server.predict(rows).status == 200
        name = name.replace("failed", "written")
        wait_until(lambda: server.metric(name) == 1, WITHIN_S)
        text = server.log.read_text()
    assert "model wide: requests are captured again" in text


def test_missing_folder_is_a_problem_and_the_model_serves(models, settings):
    """/readyz and the log say what is to be set, and no request is refused."""
    del settings["capture_dir"]
    with serving(**settings) as server:
        ask(server, range(3))
        problems = server.request("GET", "/readyz").json()["problems"]
        text = "[capture] in basket.toml has no effect: BASKET_CAPTURE_DIR is not set"
        assert problems == {"m": [text]}
        assert f"model m: {text}" in server.log.read_text()


def test_request_log_is_opened_again_at_usr1(models, settings):
    """As Gunicorn's own logs are: lines go to a new file once the old one is moved."""
    log = models.parent / "requests.jsonl"
    with serving("--workers=2", **settings) as server:
        ask(server, range(4))
        wait_until(lambda: len(logged(models)) == 4, WITHIN_S)
        moved = log.rename(models.parent / "requests.1")
        server.process.send_signal(signal.SIGUSR1)
        ask(server, range(4))
        wait_until(lambda: len(logged(models)) == 4, WITHIN_S)
    assert len(moved.read_text().splitlines()) == 4


def test_request_log_goes_to_stdout(models, settings):
    """Lines of all workers are whole, and name no key."""
    settings |= {"request_log": "-", "api_keys": "s3cret"}
    headers = {"Authorization": "Bearer s3cret"}
    with serving("--workers=2", ready=False, **settings) as server:
        server.headers = headers
        server.wait_until_ready(workers=2)
        ids = ask(server, range(30), **{"X-Client-Id": "till-7"})
        assert server.request("POST", "/predict", headers={"Authorization": ""}).status
        assert server.stop() == 0
        text = server.log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert [each["status"] for each in lines].count(401) == 1
    found = [each for each in lines if each["status"] == 200]
    assert Counter(each["request_id"] for each in found) == Counter(ids)
    assert {each["client"] for each in found} == {"till-7"}
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "arguments", [[], ["--worker-class=gthread", "--threads=2"]], ids=["asgi", "wsgi"]
)
def test_request_id_comes_back_on_every_answer(models, settings, arguments):
    """A usable one is taken, any other one is replaced; errors and Flask's, too."""
    with serving(*arguments, **settings) as server:
        for path, body in (
            *(("/predict", b'{"instances": [[1, 2, 3, 4]]}'), ("/predict", b"{")),
            *(("/v2/models/m/infer", b"{}"), ("/nothing", b""), ("/readyz", None)),
        ):
            method = "GET" if body is None else "POST"
            for given in ("a-1", "~" * 128):
                reply = server.request(method, path, body, {"X-Request-Id": given})
                assert reply.headers["X-Request-Id"] == given
            for given in ("", "a b", "é", "~" * 129):
                headers = {"X-Request-Id": given.encode("latin-1")}
                reply = server.request(method, path, body, headers)
                assert reply.headers["X-Request-Id"] not in (None, given)
