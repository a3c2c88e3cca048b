"""Locust with Basket's locustfile: dashboard and command line."""

import contextlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from app.capture.blocks import encode
from app.capture.captured import Captured, grouped
from app.capture.ring import Ring
from testing.server import ROOT, free_port, serving, simulated_models, wait_until
from tests.support.dashboard import LOCUST, dashboard

# Generous: the machine may be busy with other tests.
WITHIN_S = 60
QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [8], "outputs": 8}


def requests_of(shown):
    """Requests and failures of the run, once all its users are there."""
    run = json.loads(shown.request("/stats/requests"))
    (row,) = [each for each in run["stats"] if each["name"] == "/predict"] or [None]
    if run["state"] != "running" or not run["user_count"] or row is None:
        return 0, 0
    return row["num_requests"], row["num_failures"]


@pytest.mark.parametrize(
    ("user_class", "shape"),
    [("SelfCheckout", "Default"), ("Saturation", "Ramp"), ("SelfCheckout", "Spike")],
)
def test_dashboard_offers_classes_and_shapes_by_name(tmp_path, user_class, shape):
    """Each class and shape runs without failures when started in the dashboard."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with (
        serving("--threads=4", model_dir=folder) as server,
        dashboard(f"http://127.0.0.1:{server.port}") as shown,
    ):
        page = shown.request("/")
        assert f'"{user_class}"' in page
        assert f'"{shape}"' in page or shape == "Default"
        form = {"user_classes": user_class, "shape_class": shape}
        started = shown.request("/swarm", user_count="2", spawn_rate="2", **form)
        assert json.loads(started)["success"]
        wait_until(lambda: requests_of(shown)[0] >= 3, WITHIN_S)
        assert requests_of(shown)[1] == 0


@contextlib.contextmanager
def fake_server(answers, bodies):
    """Answer each path with a status and JSON, and keep the bodies that are sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, answer = answers.get(self.path, (404, {"error": "not here"}))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append((self.path, json.loads(body)))
            self.do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def headless(*arguments, until=lambda: False):
    """Run Locust until it ends, or stop it when a condition is true.

    Return the exit status and the output.
    """
    with subprocess.Popen(
        [LOCUST, "--headless", "--only-summary", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as locust:
        try:
            wait_until(lambda: until() or locust.poll() is not None, WITHIN_S)
            locust.terminate()
            output, _ = locust.communicate(timeout=WITHIN_S)
        finally:
            locust.kill()
    return locust.returncode, output


def test_users_send_to_tensorflow_serving():
    """With --tf-serving-model rows as its metadata says go to its :predict path."""
    sizes = [{"size": "-1", "name": ""}, {"size": "4", "name": ""}]
    tensor = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": sizes}, "name": "x:0"}
    signature = {"inputs": {"x": tensor}, "outputs": {"y": tensor}}
    found = {"signature_def": {"signature_def": {"serving_default": signature}}}
    route = "/v1/models/my_model"
    answers = {
        f"{route}/metadata": (200, {"metadata": found}),
        f"{route}:predict": (200, {"predictions": [[0.5]]}),
    }
    bodies = []
    with fake_server(answers, bodies) as host:
        arguments = (f"--host={host}", "--users=2", "--tf-serving-model=my_model")
        status, output = headless(*arguments, until=lambda: len(bodies) > 2)
    assert status == 0, output
    for path, body in bodies:
        assert path == f"{route}:predict"
        assert [len(row) for row in body["instances"]] == [4]


def test_users_send_captured_requests(tmp_path):
    """With --captured they come from a folder, and the server is asked for nothing."""
    for number in (1, 2):
        inputs = {"x": np.full((number, 3), number, np.float32)}
        about = ("rows", number, 1e9, f"id-{number}", 1, 1, 0.01)
        block = encode(grouped([Captured("other", inputs, inputs, *about)]))
        Ring(tmp_path).add(block, 1_000_000)
    bodies = []
    with fake_server({"/predict": (200, {"outputs": [1]})}, bodies) as host:
        arguments = (f"--host={host}", "Saturation", f"--captured={tmp_path}")
        status, output = headless(*arguments, until=lambda: len(bodies) > 20)
    assert status == 0, output
    sent = {(path, json.dumps(body)) for path, body in bodies}
    rows = ([[1.0] * 3], [[2.0] * 3] * 2)
    assert sent == {
        ("/predict", json.dumps({"signature_name": "other", "inputs": {"x": each}}))
        for each in rows
    }


def test_error_responses_are_failures():
    """Responses with 500 are failures with their text, and the exit status is 1."""
    model = {"inputs": [{"name": "x", "dtype": "float32", "shape": [4]}]}
    ready = {"default_model": "m", "models": {"m": model}}
    answers = {"/readyz": (200, ready), "/predict": (500, {"error": "no device"})}
    bodies = []
    with fake_server(answers, bodies) as host:
        # A user sends the second request after the response to the first.
        arguments = (f"--host={host}", "--users=1")
        status, output = headless(*arguments, until=lambda: len(bodies) > 1)
    assert status == 1
    assert "no device" in output


def test_headless_locust_without_a_server_ends_with_one_line():
    """Without a server Locust ends with status 1, one line of error, no traceback."""
    status, output = headless(f"--host=http://127.0.0.1:{free_port()}")
    assert status == 1
    assert "Traceback" not in output
    (line,) = [each for each in output.splitlines() if "ERROR" in each]
    assert "no answer from http://127.0.0.1:" in line
