"""Clients that are slow, silent, or speak no HTTP: they hold nobody up."""

import contextlib
import json
import re
import select
import socket
import time

import pytest

from tests.support.server import serving, simulated_models

QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
BODY = b'{"instances": [[1, 2]]}'
POST = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
THREADS = 2


@contextlib.contextmanager
def quick_server(tmp_path_factory, *args):
    folder = simulated_models(tmp_path_factory.mktemp("models"), quick=QUICK)
    limits = {"request_timeout_ms": "700", "max_body_bytes": "1000"}
    with serving(*args, model_dir=folder, **limits) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with quick_server(tmp_path_factory, f"--threads={THREADS}") as server:
        yield server


@pytest.fixture(
    scope="module",
    params=[f"--threads={THREADS}", "--threads=1", "--worker-class=gevent"],
    ids=["gthread", "sync", "gevent"],
)
def any_server(request, tmp_path_factory):
    """One of each class of workers."""
    with quick_server(tmp_path_factory, request.param) as server:
        yield server


def talking_to(server):
    """Send bytes on a new connection and read until the server closes it."""

    def talk(*parts, pause_s=0.0):
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause_s)
            return connection.makefile("rb").read()

    return talk


@pytest.fixture
def talk(server):
    return talking_to(server)


@pytest.fixture
def talk_to_any(any_server):
    return talking_to(any_server)


def statuses(answers):
    return [int(each) for each in re.findall(rb"HTTP/1.1 (\d+) ", answers)]


def error_in(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    "sent", [b"", POST + b"X: y"], ids=["nothing", "half a header"]
)
def test_waiting_clients_hold_no_thread(server, sent):
    """More silent connections than threads leave the others an answer at once."""
    with contextlib.ExitStack() as stack:
        for _ in range(4 * THREADS):
            address = ("127.0.0.1", server.port)
            connection = stack.enter_context(socket.create_connection(address))
            connection.sendall(sent)
        reply = server.request("POST", "/predict", BODY, timeout_s=4)
        assert reply.status == 200


def test_a_request_in_small_pieces_is_answered(talk):
    """A client that is slow, but not too slow, has its answer."""
    pieces = [WHOLE[at : at + 9] for at in range(0, len(WHOLE), 9)]
    assert statuses(talk(*pieces, LAST, pause_s=0.02)) == [200, 200]


@pytest.mark.parametrize(
    "beginning",
    [POST + b"Content-Length: 500\r\n\r\n[", CHUNKED + b"5\r\n[1"],
    ids=["length", "chunks"],
)
def test_a_body_that_does_not_come_is_a_408(server, talk, beginning):
    """The thread waits for a body within the time for a request, and no longer."""
    answer = talk(beginning)
    assert statuses(answer) == [408]
    assert b"Connection: close" in answer
    assert error_in(answer) == "the body has not come in time"
    assert server.metric('basket_rejected_total{reason="too_slow"}') >= 1


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (HEALTH, 200),
        (WHOLE, 200),
        (POST + b"Content-Length: 3\r\n\r\nxyz", 400),
        (POST + b"Content-Length: 2000\r\n\r\n" + b"GET / " * 333 + b"xx", 413),
        (b"POST /none HTTP/1.1\r\nContent-Length: 50\r\n\r\n" + HEALTH.ljust(50), 404),
        (b"PUT /readyz HTTP/1.1\r\nContent-Length: 50\r\n\r\n" + HEALTH.ljust(50), 405),
        (CHUNKED + b"3\r\nxyz\r\n0\r\n\r\n", 400),
    ],
)
def test_requests_in_one_packet_are_answered_in_order(talk, first, status):
    """What nobody read of a body is not taken for a request, and the next one is."""
    assert statuses(talk(first + HEALTH + LAST)) == [status, 200, 200]


@pytest.mark.parametrize(
    "body",
    [b"zz\r\n", b"3\r\nxyzxx\r\n", b"3\r\nxyz\r\n0\r\nHost: a\r\n\r\n"],
    ids=["size", "end", "trailer"],
)
def test_nothing_behind_a_broken_chunk_is_a_request(talk_to_any, body):
    """The connection ends with the error."""
    answer = talk_to_any(CHUNKED + body + HEALTH)
    assert statuses(answer) == [400]
    assert "the body can't be read" in error_in(answer)


def test_a_body_in_chunks_may_not_be_too_large_either(talk):
    """A body without a length is measured, not cut at the limit and run."""
    padded = BODY + b" " * 1000
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(padded), padded)
    answer = talk(CHUNKED + chunk + LAST)
    assert statuses(answer) == [413, 200]


def test_chunks_that_nobody_reads_end_the_connection_and_the_answer_says_so(talk):
    """A client that was told of a kept connection would lose its next request."""
    answer = talk(CHUNKED.replace(b"/predict", b"/none") + b"3\r\nxyz\r\n0\r\n\r\n")
    assert statuses(answer) == [404]
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 400),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nExpect: x\r\n\r\n", 417),
        (WHOLE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
    ],
)
def test_what_is_no_http_gets_json(talk_to_any, sent, status):
    """Errors of the server below the application are JSON too, and end it."""
    answer = talk_to_any(sent)
    assert statuses(answer) == [status]
    assert 0 < len(error_in(answer)) <= 200


@pytest.mark.parametrize(
    "path", ["//v2//models", "/v2/models/", "/predict/", "/predict//"]
)
def test_no_path_leads_to_another(server, path):
    """A path that is almost a route is a 404, and no redirection."""
    assert server.request("GET", path).status == 404


def test_who_reads_nothing_before_all_is_sent_hears_why_it_is_too_large(server):
    """A client that has far more to send than the kernel keeps has its answer."""
    reply = server.request("POST", "/predict", bytes(32 << 20))
    assert reply.status == 413
    assert reply.json()["error"] == "the body is larger than 1000 bytes"


@pytest.mark.parametrize(("size", "answers"), [(1000, [100, 400]), (1001, [413])])
def test_who_asks_first_is_not_told_to_send_too_much(talk, size, answers):
    """A client that waits for a 100 hears at once that its body is too large."""
    head = POST + b"Expect: 100-continue\r\nConnection: close\r\n"
    body = b" " * 1000
    assert statuses(talk(head + b"Content-Length: %d\r\n\r\n" % size, body)) == answers


def test_what_only_asks_is_answered_while_clients_keep_all_threads(tmp_path):
    """Health and metrics wait for nobody who sends a body in pieces."""
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


def test_a_cut_body_is_not_run(server):
    """A body that ends too early is a 400, though what came would be a request."""
    with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
        connection.sendall(POST + b"Content-Length: 100\r\n\r\n" + BODY)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert statuses(answer) == [400]
    assert error_in(answer) == "the body can't be read: it is cut off"


def test_a_client_that_waits_without_a_request_does_not_delay_the_stop(tmp_path):
    """SIGTERM ends the server though clients are connected that have sent nothing."""
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
