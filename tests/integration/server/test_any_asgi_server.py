"""`wsgi:asgi` under ASGI servers other than Basket's worker, as they are installed."""

import http.client
import json
import signal
import socket
import threading
from contextlib import ExitStack, closing

import pytest

from testing.clients import Client, at_once, in_parallel
from testing.server import (
    free_port,
    installed,
    metric_sum,
    running,
    simulated_models,
    wait_until,
)

STEADY = {"base_ms": 100, "per_row_ms": 0, "input_shape": [4], "outputs": 4}
SLOW = {**STEADY, "base_ms": 1200}
BODY = b'{"instances": [[1, 2, 3, 4]]}'
LIMIT = 100_000
WAITING = 'basket_queue_rows{model="slow",version="1"}'


def uvicorn(*args, **rest):
    port = free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}", *args]
    # It logs no line for a model that is ready, and ends by the signal.
    return running(command, port, ready=False, check_exit=False, **rest)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A uvicorn with two models, of which `slow` runs one row at a time."""
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, steady=STEADY, slow=SLOW)
    (folder / "slow" / "basket.toml").write_text("max_batch_size = 1\n")
    settings = {"default_model": "steady", "max_body_bytes": str(LIMIT)}
    with uvicorn(model_dir=models, **settings) as server:
        server.wait_until_ready(0)
        yield server


def test_requests_at_the_same_time_share_batches(server):
    """Each of 16 clients gets its own rows, in batches, which the metrics count."""
    rows = [[float(number)] * 4 for number in range(16)]
    before = metric_sum(server, "basket_batch_rows_sum")
    replies, _ = at_once(server.port, rows)
    for row, reply in zip(rows, replies, strict=True):
        assert reply.json() == {"predictions": [row]}
    assert max(int(reply.headers["X-Batch-Size"]) for reply in replies) > 1
    assert metric_sum(server, "basket_batch_rows_sum") - before == 16


def test_body_over_limit_returns_413_before_it_is_sent(server):
    """The announced length is enough."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, 10)
    with closing(connection):
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Length", str(10**9))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_truncated_body_is_not_run(server):
    """A body that ends too early is rejected, though what came would be a request."""
    ran = 'basket_requests_total{model="steady",status="200",version="1"}'
    rejected = 'basket_rejected_total{reason="bad_input"}'
    before = server.metric(ran), server.metric(rejected)
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        head = (
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head + BODY)
        connection.shutdown(socket.SHUT_WR)
        assert b"predictions" not in connection.makefile("rb").read()
    wait_until(lambda: server.metric(rejected) == before[1] + 1, 60)
    assert server.metric(ran) == before[0]


def test_deadline_returns_504(server):
    """A response that is not ready at the request's deadline is not waited for."""
    headers = {"X-Request-Timeout-Ms": "200"}
    reply = server.request("POST", "/v1/models/slow:predict", BODY, headers)
    assert reply.status == 504
    # Its batch ends before the next test begins.
    assert server.request("POST", "/v1/models/slow:predict", BODY).status == 200


def test_disconnect_drops_rows_and_health_answers_meanwhile(server):
    """A client that disconnects while its row waits costs no inference."""
    path = "/v1/models/slow:predict"
    three = json.dumps({"instances": [[1.0] * 4] * 3}).encode()
    ran = 'basket_batch_rows_count{model="slow",version="1"}'
    before, replies = server.metric(ran), []
    ask = threading.Thread(
        target=lambda: replies.append(server.request("POST", path, three))
    )
    ask.start()
    wait_until(lambda: server.metric(WAITING) == 2, 60)
    with socket.create_connection(("127.0.0.1", server.port), 10) as leaves:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}"
        leaves.sendall(f"{head}\r\n\r\n".encode() + BODY)
        wait_until(lambda: server.metric(WAITING) == 3, 60)
        for health in ("/healthz", "/readyz", "/metrics"):
            assert server.request("GET", health).status == 200
        assert not replies
    ask.join()
    assert replies[0].status == 200
    wait_until(lambda: server.metric('basket_rejected_total{reason="abandoned"}'), 60)
    assert server.metric(WAITING) == 0
    assert server.metric(ran) == before + 3


@pytest.mark.parametrize("batching", ["on", "off"])
def test_sigterm_answers_requests_in_flight(tmp_path, batching):
    """All that have been sent before SIGTERM are answered, and the server ends."""
    folder = simulated_models(tmp_path, steady=STEADY)
    with ExitStack() as stack:
        server = stack.enter_context(uvicorn(model_dir=folder, batching=batching))
        server.wait_until_ready(0)
        clients = [stack.enter_context(Client(server.port)) for _ in range(8)]

        def ask(place):
            clients[place].send([[float(place)] * 4])
            assert clients[place].receive().status == 200

        in_parallel(ask, len(clients))
        for number, client in enumerate(clients):
            client.send([[float(number)] * 4])
        # uvicorn closes connections whose request it has not read yet.
        wait_until(lambda: metric_sum(server, "basket_requests_total") > 8, 60)
        assert server.stop() == -signal.SIGTERM
        for number, client in enumerate(clients):
            assert client.receive().json() == {"predictions": [[float(number)] * 4]}


def test_single_model_is_served(tmp_path):
    """Without Gunicorn there is no shared folder for its version numbers."""
    simulated_models(tmp_path, steady=STEADY)
    with uvicorn(model=str(tmp_path / "steady" / "1")) as server:
        server.wait_until_ready(0)
        reply = server.request("POST", "/v1/models/steady:predict", BODY)
        assert reply.json() == {"predictions": [[1.0, 2.0, 3.0, 4.0]]}


def test_missing_single_model_stops_the_start():
    """The line names the setting and what is expected."""
    with uvicorn(model="no.keras") as server:
        assert server.process.wait(60) == 1
        log = server.log.read_text()
        text = "Basket does not start: BASKET_MODEL='no.keras': No such file or dire"
        assert text in log
        assert "Traceback" not in log


def test_shared_model_process_is_refused(tmp_path):
    """Only Gunicorn starts model processes; the line says so."""
    folder = simulated_models(tmp_path, steady=STEADY)
    with uvicorn(model_dir=folder, model_process="shared") as server:
        assert server.process.wait(60) == 1
        log = server.log.read_text()
        assert "Basket does not start: BASKET_MODEL_PROCESS=shared: only Gun" in log
        assert "Traceback" not in log


def test_granian(tmp_path):
    """Granian's ASGI interface serves the same application."""
    folder = simulated_models(tmp_path, steady=STEADY)
    port = free_port()
    command = [installed("granian"), "--interface=asgi", "wsgi:asgi", f"--port={port}"]
    with running(command, port, ready=False, model_dir=folder) as server:
        server.wait_until_ready(0)
        for path in ("/predict", "/v1/models/steady:predict"):
            reply = server.request("POST", path, BODY)
            assert json.loads(reply.body) == {"predictions": [[1.0, 2.0, 3.0, 4.0]]}
