"""Gunicorn's own worker classes, which serve the application over WSGI."""

import json
import re
import socket
from contextlib import ExitStack

import pytest

from testing.clients import Client, in_parallel
from testing.server import metric_sum, serving, simulated_models
from tests.support import worker_classes

SLOW = {"base_ms": 100, "per_row_ms": 0, "input_shape": [4], "outputs": 4}
BODY = b'{"instances": [[1, 2, 3, 4]]}'
CLIENTS = 8


@pytest.fixture(scope="module", params=worker_classes.GUNICORN)
def served(request, tmp_path_factory):
    """A server of each class, and how many of its requests run at a time."""
    folder = simulated_models(tmp_path_factory.mktemp("models"), slow=SLOW)
    with serving(*request.param, model_dir=folder, max_body_bytes="1000") as server:
        is_sync = request.param == ("--worker-class=sync",)
        yield server, 1 if is_sync else CLIENTS


@pytest.fixture
def server(served):
    return served[0]


def test_requests_at_the_same_time_share_batches(served):
    """Each row gets its own answer, in batches of up to as many as run at a time."""
    server, at_a_time = served
    sizes = set()

    def work(place):
        for number in range(3):
            # Each on a connection of its own, as the sync worker keeps none.
            with Client(server.port) as client:
                row = [float(place), float(number), 0.5, -0.5]
                client.send([row])
                reply = client.receive()
                assert reply.json() == {"predictions": [row]}
                sizes.add(int(reply.headers["X-Batch-Size"]))

    before = metric_sum(server, "basket_batch_rows_sum")
    in_parallel(work, CLIENTS)
    assert metric_sum(server, "basket_batch_rows_sum") - before == 3 * CLIENTS
    assert max(sizes) <= at_a_time
    assert (max(sizes) > 1) == (at_a_time > 1)


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Content-Length: 100\r\n\r\n" + BODY, 400),
        (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY, 400),
        (
            b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n%b\r\n0\r\n\r\n" % bytes(1001),
            413,
        ),
    ],
    ids=["truncated", "truncated-chunks", "chunks-over-limit"],
)
def test_incomplete_or_large_body_is_not_run(server, framing, status):
    """A body that ends too early is 400, though what came would be a request."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + framing)
        connection.shutdown(socket.SHUT_WR)
        response = connection.makefile("rb").read()
    assert [int(each) for each in re.findall(rb"HTTP/1.1 (\d+) ", response)] == [status]
    assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("worker_class", worker_classes.GUNICORN)
def test_sigterm_answers_requests_in_flight(tmp_path, worker_class):
    """Requests that began before SIGTERM are answered, and the exit status is 0."""
    folder = simulated_models(tmp_path, slow={**SLOW, "base_ms": 500})
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    # An idle connection would keep gevent's worker until its graceful timeout of 30 s.
    head += b"Connection: close\r\n"
    with ExitStack() as stack:
        server = stack.enter_context(serving(*worker_class, model_dir=folder))
        address = ("127.0.0.1", server.port)
        clients = [
            stack.enter_context(socket.create_connection(address, 20))
            for _ in range(1 if "sync" in worker_class[0] else 4)
        ]
        for client in clients:
            client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(BODY))
            # Sent once a thread or greenlet has the request.
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
            client.sendall(BODY)
        assert server.stop() == 0
        for client in clients:
            response = client.makefile("rb").read()
            assert response.startswith(b"HTTP/1.1 200 ")
            assert response.endswith(b'{"predictions":[[1.0,2.0,3.0,4.0]]}')
