"""Locust with Basket's locustfile: dashboard and command line."""

import contextlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from testing.server import ROOT, free_port, serving, simulated_models, wait_until
from tests.support.dashboard import LOCUST, dashboard

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
        wait_until(lambda: requests_of(shown)[0] >= 3, 30)
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


def headless(*arguments):
    return subprocess.run(
        [LOCUST, "--headless", "--only-summary", "--run-time=4s", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=55,
        check=False,
    )


def test_users_send_to_tensorflow_serving():
    """With --tf-serving-model rows as its metadata says go to its :predict path."""
    sizes = [{"size": "-1", "name": ""}, {"size": "4", "name": ""}]
    tensor = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": sizes}, "name": "x:0"}
    signature = {"inputs": {"x": tensor}, "outputs": {}}
    found = {"signature_def": {"signature_def": {"serving_default": signature}}}
    route = "/v1/models/my_model"
    answers = {
        f"{route}/metadata": (200, {"metadata": found}),
        f"{route}:predict": (200, {"predictions": [[0.5]]}),
    }
    bodies = []
    with fake_server(answers, bodies) as host:
        done = headless(f"--host={host}", "--users=2", "--tf-serving-model=my_model")
    assert done.returncode == 0, done.stdout
    assert bodies
    for path, body in bodies:
        assert path == f"{route}:predict"
        assert [len(row) for row in body["instances"]] == [4]


def test_error_responses_are_failures():
    """Responses with 500 are failures with their text, and the exit status is 1."""
    model = {"inputs": [{"name": "x", "dtype": "float32", "shape": [4]}]}
    ready = {"default_model": "m", "models": {"m": model}}
    answers = {"/readyz": (200, ready), "/predict": (500, {"error": "no device"})}
    with fake_server(answers, []) as host:
        done = headless(f"--host={host}", "--users=1")
    assert done.returncode == 1
    assert "no device" in done.stdout


def test_headless_locust_without_a_server_ends_with_one_line():
    """Without a server Locust ends with status 1, one line of error, no traceback."""
    done = headless(f"--host=http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    (line,) = [each for each in done.stdout.splitlines() if "ERROR" in each]
    assert "no answer from http://127.0.0.1:" in line
