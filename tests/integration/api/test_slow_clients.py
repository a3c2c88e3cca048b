"""Slow clients, pipelined requests and bodies of any size, against the application."""

import contextlib
import json
import re
import select
import socket
import time

import pytest

from testing.server import serving, simulated_models

QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
BODY = b'{"instances": [[1, 2]]}'
POST = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
THREADS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = simulated_models(tmp_path_factory.mktemp("models"), quick=QUICK)
    limits = {"request_timeout_ms": "700", "max_body_bytes": "1000"}
    with serving(f"--threads={THREADS}", model_dir=folder, **limits) as server:
        yield server


@pytest.fixture
def talk(server):
    """Send bytes on a new connection, and return all until the server closes it."""

    def talk(*parts):
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            for part in parts:
                connection.sendall(part)
            return connection.makefile("rb").read()

    return talk


def statuses(responses):
    return [int(each) for each in re.findall(rb"HTTP/1.1 (\d+) ", responses)]


def error_in(response):
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    "beginning",
    [POST + b"Content-Length: 500\r\n\r\n[", CHUNKED + b"5\r\n[1"],
    ids=["length", "chunked"],
)
def test_body_timeout_returns_408(server, talk, beginning):
    """A body that stops is waited for within the request timeout, and no longer."""
    response = talk(beginning)
    assert statuses(response) == [408]
    assert b"Connection: close" in response
    assert error_in(response) == "the body has not come in time"
    assert server.metric('basket_rejected_total{reason="too_slow"}') >= 1


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (HEALTH, 200),
        (POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY, 200),
        (POST + b"Content-Length: 3\r\n\r\nxyz", 400),
        (POST + b"Content-Length: 2000\r\n\r\n" + b"GET / " * 333 + b"xx", 413),
        (
            b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
            + HEALTH.ljust(50),
            404,
        ),
        (
            b"PUT /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
            + HEALTH.ljust(50),
            405,
        ),
        (CHUNKED + b"3\r\nxyz\r\n0\r\n\r\n", 400),
    ],
)
def test_pipelined_requests_are_answered_in_order(talk, first, status):
    """An unread body is not parsed as a request, and the next request is answered."""
    assert statuses(talk(first + HEALTH + LAST)) == [status, 200, 200]


def test_chunked_body_over_limit_returns_413(talk):
    """A body without a length is measured, not cut at the limit and run."""
    padded = BODY + b" " * 1000
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(padded), padded)
    assert statuses(talk(CHUNKED + chunk + LAST)) == [413, 200]


@pytest.mark.parametrize(
    "path", ["//v2//models", "/v2/models/", "/predict/", "/predict//"]
)
def test_path_that_is_almost_a_route_returns_404(server, path):
    """No path is redirected to another one."""
    assert server.request("GET", path).status == 404


def test_expect_100_continue_over_limit_returns_413(server, talk):
    """A client that waits for 100 learns at once that its body is too large."""
    head = POST + b"Expect: 100-continue\r\nConnection: close\r\n"
    assert statuses(talk(head + b"Content-Length: 1001\r\n\r\n")) == [413]
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(head + b"Content-Length: 1000\r\n\r\n")
        assert statuses(connection.recv(100)) == [100]
        connection.sendall(b" " * 1000)
        assert statuses(connection.makefile("rb").read()) == [400]


def test_truncated_body_returns_400(server):
    """A body that ends too early is not run, though what came would be a request."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(POST + b"Content-Length: 100\r\n\r\n" + BODY)
        connection.shutdown(socket.SHUT_WR)
        response = connection.makefile("rb").read()
    assert statuses(response) == [400]
    assert error_in(response) == "the body can't be read: it is cut off"


def test_health_and_metrics_are_answered_beside_slow_bodies(tmp_path):
    """More clients than threads that send their body in pieces delay no other route."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with (
        serving(f"--threads={THREADS}", model_dir=folder) as server,
        contextlib.ExitStack() as stack,
    ):
        address = ("127.0.0.1", server.port)
        slow = [
            stack.enter_context(socket.create_connection(address, 20))
            for _ in range(THREADS + 1)
        ]
        for each in slow:
            each.sendall(CHUNKED + b"5\r\n[1")
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models/quick"):
            assert server.request("GET", path, timeout_s=20).status == 200
        assert select.select(slow, [], [], 0)[0] == []


def test_half_a_head_does_not_delay_the_graceful_shutdown(tmp_path):
    """SIGTERM ends the server though clients have sent nothing, or half a head."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving("--threads=2", model_dir=folder) as server:
        address = ("127.0.0.1", server.port)
        with (
            socket.create_connection(address),
            socket.create_connection(address) as one,
        ):
            one.sendall(POST)
            server.predict([[1.0, 2.0]])
            began_at = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began_at < 15
