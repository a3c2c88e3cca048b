"""Granian in Gunicorn's place: what holds under both, and what is different."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient

from tests.support.clients import Client, in_parallel
from tests.support.nginx import NGINX, proxy
from tests.support.server import (
    ROOT,
    lives,
    metric_sum,
    serving,
    simulated_models,
    wait_until,
)
from tests.support.tensors import inputs_of, outputs_of

QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
STEADY = {**QUICK, "base_ms": 20}
SLOW = {**QUICK, "base_ms": 700}
BODY = json.dumps({"instances": [[1.0] * 8]}).encode()
POST = b"POST /predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, quick=QUICK, steady=STEADY)
    settings = {"default_model": "quick", "max_batch_size": "16", "api_keys": "key"}
    with serving(program="granian", model_dir=models, **settings) as server:
        server.headers["Authorization"] = "Bearer key"
        yield server


def _talk(server, request, *, end=False):
    """Send bytes on a connection of their own, and read until the server closes it."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_kept_connections_share_batches(server):
    """Each of 16 clients gets its own rows back, in batches, on one connection."""
    sizes = []

    def work(place):
        with Client(server.port) as client:
            for number in range(25):
                row = [float(place), float(number)] * 4
                client.send([row], server.headers)
                reply = client.receive()
                assert reply.json() == {"predictions": [row]}
                sizes.append(int(reply.headers["X-Batch-Size"]))

    before = metric_sum(server, "basket_requests_total")
    in_parallel(work, 16)
    assert max(sizes) > 1
    assert metric_sum(server, "basket_requests_total") - before == 400


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("quick:predict", 200, "predictions"),
        ("quick/versions/1:predict", 200, "predictions"),
        ("%71uick%3Apredict", 200, "predictions"),
        ("no%20body:predict", 404, "Latest(no body)"),
        ("%C3%A9:predict", 404, "Latest(é)"),
        # Under Gunicorn, which keeps the path as it came, these are names.
        ("a%2Fb:predict", 400, "Malformed request"),
        ("a%3Ab:predict", 400, "Malformed request"),
    ],
)
def test_paths_of_v1(server, path, status, text):
    """V1 finds models and verbs in paths that Granian has decoded."""
    reply = server.request("POST", f"/v1/models/{path}", BODY)
    assert reply.status == status
    assert text in reply.body.decode()


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_client(server, binary):
    """V2's client sends and reads tensors, as bytes and as JSON."""
    rows = np.arange(24, dtype=np.float32).reshape(3, 8)
    # A copy, as the client adds to it.
    key = {"headers": dict(server.headers)}
    client = InferenceServerClient(f"127.0.0.1:{server.port}")
    try:
        metadata = client.get_model_metadata("quick", **key)
        name, answer = (metadata[each][0]["name"] for each in ("inputs", "outputs"))
        inputs = inputs_of({name: rows}, binary=binary)
        outputs = outputs_of([answer], binary=binary)
        result = client.infer("quick", inputs, outputs=outputs, **key)
        assert np.array_equal(result.as_numpy(answer), rows)
    finally:
        client.close()


def test_keys_are_asked_for(server):
    """Without a key a prediction is a 401, and health is told."""
    nobody = {"Authorization": ""}
    assert server.request("POST", "/predict", BODY, nobody).status == 401
    assert server.request("GET", "/healthz", None, nobody).status == 200


def test_a_body_that_nobody_wants_is_no_request(server):
    """Health is told beside a body, whose bytes are not taken for the next request."""
    first = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nGET / HTT"
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = _talk(server, first + last).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"401"]


def test_requests_in_one_packet_are_answered_in_order(server):
    """One connection carries a body in chunks, then one that is wrong, then none."""
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    first = POST + chunks % (len(BODY), BODY)
    second = POST + b"Content-Length: 3\r\n\r\nxyz"
    last = b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answers = _talk(server, first + second + last).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200", b"400", b"401"]


def test_a_cut_body_is_not_run(server):
    """A body that ends too early is a 400, though what came would be a request."""
    answer = _talk(server, POST + b"Content-Length: 1000\r\n\r\n" + BODY, end=True)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the body can't be read: it is cut off" in answer


def test_who_half_closes_a_connection_gets_no_answer(server):
    """A client that closes its side while its request is answered hears nothing."""
    post = POST.replace(b"/predict", b"/v1/models/steady:predict")
    whole = post + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    assert _talk(server, whole, end=True) == b""


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"0\r\n\r\n", b"200"), (b"", b"400"), (b"zz\r\n", b"400")],
    ids=["whole", "cut off", "broken"],
)
def test_broken_chunks_are_not_run(server, rest, status):
    """Chunks without their end are a 400, though what came would be a request."""
    begin = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
    sent = POST + begin % (len(BODY), BODY) + rest
    assert _talk(server, sent, end=not rest).startswith(b"HTTP/1.1 %s " % status)


def test_a_late_row_is_told_so(server):
    """A row whose deadline passes behind others gets no prediction."""
    path = "/v1/models/steady:predict"
    many = json.dumps({"instances": [[0.0] * 8] * 200}).encode()
    busy = threading.Thread(target=server.request, args=("POST", path, many))
    busy.start()
    waiting = 'basket_queue_rows{model="steady",version="1"}'
    wait_until(lambda: server.metric(waiting) > 0, 10)
    late = server.request("POST", path, BODY, {"X-Request-Timeout-Ms": "1"})
    # It may be late already when it is read, or is refused as it would be.
    assert late.status in (503, 504)
    busy.join()


SLOW_BODY = POST + b"Content-Length: 100\r\n\r\n{"


@pytest.fixture
def hasty(tmp_path):
    """A server that gives a request two seconds, and one batch at a time to a model."""
    folder = simulated_models(tmp_path, quick=QUICK, slow=SLOW)
    settings = {"default_model": "quick", "max_batch_size": "1"}
    limits = {"request_timeout_ms": "2000"}
    with serving(program="granian", model_dir=folder, **settings, **limits) as server:
        yield server


def test_slow_bodies_keep_nobody_waiting(hasty):
    """Beside 1,000 bodies that stand still others are answered, and then these: 408."""
    address = ("127.0.0.1", hasty.port)
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(address, 60))
            for _ in range(1000)
        ]
        for connection in slow:
            connection.sendall(SLOW_BODY)
        assert hasty.request("GET", "/healthz").status == 200
        assert hasty.predict([[1.0] * 8]).status == 200
        for connection in slow:
            answer = connection.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"the body has not come in time" in answer
        assert hasty.metric('basket_rejected_total{reason="too_slow"}') == 1000


def test_rows_of_who_has_hung_up_do_not_run(hasty):
    """A client that goes while its job waits is dropped before the model runs."""
    post = POST.replace(b"/predict", b"/v1/models/slow:predict")
    whole = post + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    address = ("127.0.0.1", hasty.port)
    waiting = 'basket_queue_rows{model="slow",version="1"}'
    with socket.create_connection(address, 60) as first:
        first.sendall(whole)
        ran = 'basket_batch_rows_count{model="slow",version="1"}'
        with socket.create_connection(address, 60) as second:
            # Of the two only one runs.
            second.sendall(whole)
            wait_until(lambda: hasty.metric(waiting) == 1, 10)
        assert first.makefile("rb").readline().startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: hasty.metric(waiting) == 0, 10)
        assert hasty.metric('basket_rejected_total{reason="abandoned"}') == 1
        assert hasty.metric(ran) == 1


def test_large_bodies_are_decoded_beside_small_ones(server):
    """Each of eight clients gets its own rows, many in one body or one in each."""

    def work(place):
        is_large = place % 2
        for number in range(5):
            row = [float(place), float(number)] * 4
            rows = [row] * 16 if is_large else [row]
            body = json.dumps({"instances": rows}).encode()
            # White space is read as well.
            reply = server.request("POST", "/predict", body.ljust(2_000_000 * is_large))
            assert reply.json() == {"predictions": rows}

    in_parallel(work, 8)


def test_without_batching_health_is_told_meanwhile(tmp_path):
    """While the naive API runs one request after the other /healthz is answered."""
    folder = simulated_models(tmp_path, slow=SLOW)
    settings = {"model_dir": folder, "batching": "off"}
    with serving(program="granian", **settings) as server, ExitStack() as stack:
        clients = [stack.enter_context(Client(server.port)) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send([[float(number)] * 8])
        assert server.request("GET", "/healthz").status == 200
        assert metric_sum(server, "basket_batch_rows_sum") < 4
        for number, client in enumerate(clients):
            reply = client.receive()
            assert reply.json() == {"predictions": [[float(number)] * 8]}
            assert reply.headers["X-Batch-Size"] == "1"


@pytest.fixture(scope="module")
def http_2(tmp_path_factory):
    """A client of HTTP/2, as a function: curl's arguments to an answer and a status."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    folder = simulated_models(tmp_path_factory.mktemp("models"), quick=QUICK)
    settings = {"model_dir": folder, "api_keys": "key"}
    with serving("--http=auto", program="granian", **settings) as server:

        def ask(path, *arguments, body=b""):
            talk = ["curl", "--silent", "--http2-prior-knowledge", *arguments]
            show = ["--write-out", "\n%{http_version} %{http_code}"]
            url = f"http://127.0.0.1:{server.port}{path}"
            command = [*talk, *show, url]
            done = subprocess.run(command, input=body, capture_output=True, check=True)
            answer, _, status = done.stdout.rpartition(b"\n")
            return answer, status.decode()

        yield ask


KEY = ("--header", "Authorization: Bearer key")
ONES = b'{"predictions":[%s]}' % json.dumps([1.0] * 8, separators=(",", ":")).encode()


def test_http_2(http_2):
    """Without --http 1 a client that speaks HTTP/2 is understood."""
    assert http_2("/predict", *KEY, "--data-binary", BODY) == (ONES, "2 200")


def test_http_2_needs_no_length(http_2):
    """A body that is sent while it is made, and ends with an empty frame, is whole."""
    sent = ("--request", "POST", "--upload-file", "-")
    assert http_2("/predict", *KEY, *sent, body=BODY) == (ONES, "2 200")


@pytest.mark.parametrize("method", ["--get", "--head"])
def test_http_2_asks_no_key_for_health(http_2, method):
    """Health is told to anybody where HTTP/2 leaves open whether a body follows."""
    assert http_2("/healthz", method)[1] == "2 200"


@pytest.mark.skipif(NGINX is None, reason="needs Debian's package nginx")
def test_behind_nginx_slow_bodies_keep_nobody_waiting(server, tmp_path):
    """A proxy takes in whole requests first, and passes them on."""
    with proxy(tmp_path / "nginx", server.port) as nginx, ExitStack() as stack:
        for _ in range(2):
            address = ("127.0.0.1", nginx.port)
            slow = stack.enter_context(socket.create_connection(address))
            slow.sendall(SLOW_BODY)
        for _ in range(5):
            assert nginx.predict([[1.0] * 8], server.headers).status == 200


@pytest.mark.parametrize(
    ("arguments", "setting", "text"),
    [
        ((), {"max_batch_size": "lots"}, "BASKET_MAX_BATCH_SIZE='lots': expected"),
        (("--workers=2",), {}, "--workers 2: with Granian it is 1"),
        (("--interface=wsgi",), {}, "--interface wsgi: Granian serves this with"),
    ],
    ids=["setting", "argument", "interface"],
)
def test_what_can_not_be_stops_the_start(tmp_path, arguments, setting, text):
    """A bad setting or argument ends Granian, with a line that names it."""
    folder = simulated_models(tmp_path, quick=QUICK)
    settings = {"model_dir": folder, **setting}
    with serving(*arguments, program="granian", ready=False, **settings) as server:
        assert server.process.wait(30) == 1
        log = server.log.read_text()
        assert f"Basket does not start: {text}" in log
        assert "Traceback" not in log


def test_a_killed_worker_comes_back(tmp_path):
    """With --respawn-failed-workers kill -9 of the worker costs what it held alone."""
    folder = simulated_models(tmp_path, quick=QUICK)
    argument = "--respawn-failed-workers"
    with serving(argument, program="granian", model_dir=folder) as server:
        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: set(server.workers()).isdisjoint(before), 30)
        server.wait_until_ready()
        assert server.predict([[1.0] * 8]).status == 200


def test_a_worker_does_not_outlive_its_server(tmp_path):
    """After kill -9 of the main process its worker ends, and frees the port."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving(program="granian", model_dir=folder) as server:
        (worker,) = server.workers()
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not lives(worker), 30)


@pytest.mark.timeout(180)
def test_a_keras_model_loads_beside_the_answers(tmp_path):
    """While TensorFlow loads /healthz is 200, /readyz 503, and then it predicts."""
    models = str(ROOT / "models")
    with serving(program="granian", ready=False, model_dir=models) as server:
        is_up = "Started worker-1"
        wait_until(lambda: is_up in server.log.read_text(), 60)
        reply = server.request("GET", "/readyz")
        assert reply.status == 503
        assert b"is loading" in reply.body
        assert server.request("GET", "/healthz").status == 200
        server.wait_until_ready()
        assert server.predict([[[[0.0]] * 8] * 8]).status == 200
