"""Graceful shutdown: SIGTERM drains the backlog, and answers all that was accepted."""

import contextlib
import os
import signal
import time

import pytest

from testing.server import lives
from tests.support.front import assert_clean, chunked, front, get, post, request, until

STOPPING = {"error": "the server is stopping"}
LARGE = 32 << 20


@pytest.fixture
def server():
    with front("--threads=2", "--graceful-timeout=10") as server:
        yield server


@pytest.mark.parametrize("clients", [50, 1000])
def test_sigterm_answers_all_who_have_sent(server, clients):
    """N clients connect and send right before SIGTERM: N answers, and status 0."""
    wires = [server.connect(post("/echo", b"%d" % place)) for place in range(clients)]
    server.signal(signal.SIGTERM)
    for place, wire in enumerate(wires):
        assert wire.response().body == b"%d" % place
    assert server.wait() == 0


@pytest.mark.parametrize(
    "args",
    [["--threads=2"], ["--threads=2", "--worker-connections=10"]],
    ids=["below worker_connections", "above worker_connections"],
)
def test_sigterm_drains_the_backlog(args):
    """Clients that wait in the kernel while the loop is blocked are answered."""
    with front(*args) as server:
        blocking = server.block("backlog", 0.5)
        # One that comes and goes in one step is not the last of the backlog.
        headers = ([], ["Connection: close"])
        wires = [
            server.connect(post("/echo", b"%d" % place, *headers[place % 2]))
            for place in range(50)
        ]
        server.signal(signal.SIGTERM)
        assert blocking.response().body == b"blocked"
        for place, wire in enumerate(wires):
            assert wire.response().body == b"%d" % place
        assert server.wait() == 0


def test_clients_that_keep_connecting_do_not_delay_the_shutdown(server):
    """No more are accepted than may wait in the kernel at a time."""
    server.signal(signal.SIGTERM)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 100_000:
            server.connect(get("/echo", "Connection: close")).close()
            sent += 1
    assert sent < 100_000
    assert server.wait() == 0


def test_sigterm_closes_the_port_while_requests_finish(server):
    """New clients are refused, and a request under way has its whole response."""
    wires = [
        server.connect(get("/sleep?s=1")),
        server.connect(get("/held-bytes?bytes=4&name=never")),
        server.connect(chunked("/echo", b"bo", b"dy")[:-5]),
    ]
    server.wait_for("/waits?name=never")
    release = server.connect()
    assert release.ask(get("/echo")).status == 200
    server.signal(signal.SIGTERM)
    until(server.is_refusing)
    wires[2].send(b"0\r\n\r\n")
    assert release.ask(get("/release?name=never")).closes()
    bodies = [wire.response().body for wire in wires]
    assert bodies == [b"slept", bytes(4), b"body"]
    assert server.wait() == 0


def test_idle_connections_are_closed_a_second_after_sigterm(server):
    """They have the second, and do not hold up the stop for longer."""
    idle = server.connect()
    assert idle.ask(get("/echo")).status == 200
    silent, half = server.connect(), server.connect(b"GET /echo HT")
    began_at = time.monotonic()
    server.signal(signal.SIGTERM)
    assert idle.has_ended()
    assert time.monotonic() - began_at > 0.8
    assert silent.has_ended()
    assert [each.status for each in half.all_responses()] in ([], [408])
    assert server.wait() == 0
    assert time.monotonic() - began_at < 6


def test_half_a_head_after_sigterm_does_not_hold_up_the_stop(server):
    """It has a second, and not the header timeout."""
    late = server.connect()
    assert late.ask(get("/echo")).status == 200
    began_at = time.monotonic()
    server.signal(signal.SIGTERM)
    until(server.is_refusing)
    late.send(b"GET /echo HT")
    assert [each.status for each in late.all_responses()] in ([], [408])
    assert server.wait() == 0
    assert time.monotonic() - began_at < 6


def test_request_on_an_idle_connection_after_sigterm_is_answered(server):
    """A client with keep-alive may send; its response says close."""
    idle, silent, half = (server.connect() for _ in range(3))
    assert not idle.ask(get("/echo")).closes()
    sent = post("/echo", b"in time")
    half.send(sent[:9])
    server.signal(signal.SIGTERM)
    until(server.is_refusing)
    half.send(sent[9:])
    for wire in (idle, silent):
        wire.send(sent)
    for wire in (idle, silent, half):
        response = wire.response()
        assert (response.body, response.closes()) == (b"in time", True)
        assert wire.has_ended()
    assert server.wait() == 0


def test_response_that_said_keep_alive_before_sigterm_leaves_a_second(server):
    """A client that learns of keep-alive late has its next request answered."""
    wire = server.connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    server.signal(signal.SIGTERM)
    until(server.is_refusing)
    response = wire.response()
    assert response.status == 200
    if not response.closes():
        response = wire.ask(post("/echo", b"next"))
        assert (response.body, response.closes()) == (b"next", True)
    assert server.wait() == 0


def test_pipelined_requests_are_answered_after_sigterm(server):
    """Requests that came before SIGTERM, behind one under way, are answered."""
    wire = server.connect(
        get("/sleep?s=0.5") + post("/echo", b"2") + post("/echo", b"3")
    )
    until(lambda: server.found("/waits?name=") == 1)
    server.signal(signal.SIGTERM)
    responses = wire.all_responses()
    assert [each.body for each in responses] == [b"slept", b"2", b"3"]
    assert [each.closes() for each in responses[:2]] == [False, False]
    assert server.wait() == 0


def test_large_response_is_read_to_its_end_after_sigterm(server):
    """A slow reader that keeps reading receives the whole response."""
    wire = server.connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    server.signal(signal.SIGTERM)
    until(server.is_refusing)
    assert wire.response().body == bytes(LARGE)
    assert server.wait() == 0


def test_request_that_outlasts_the_graceful_timeout_gets_503(tmp_path):
    """The application answers 503 two seconds before the time is up."""
    with front("--threads=2", "--graceful-timeout=3") as server:
        holding = server.hold("late", 3)
        reading = server.connect(request("POST", "/read?name=b", "Content-Length: 9"))
        server.wait_for("/waits?name=b")
        began_at = time.monotonic()
        server.signal(signal.SIGTERM)
        for wire in (*holding, reading):
            response = wire.response()
            assert (response.status, response.json()) == (503, STOPPING)
            assert response.closes()
        assert 0.8 < time.monotonic() - began_at < 3
        assert server.wait() == 0
        assert "close_calls" in server.log.read_text()


def test_request_that_ignores_the_shutdown_is_cut_at_the_graceful_timeout():
    """The worker ends in time even if its application does not."""
    with front("--threads=2", "--graceful-timeout=3", clean=False) as server:
        wire = server.connect(get("/deaf?s=60&name=deaf"))
        server.wait_for("/waits?name=deaf")
        (worker,) = server.workers()
        began_at = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began_at < 8
        assert wire.is_broken()
        assert not lives(worker)


def test_calls_are_closed_after_the_last_response(server):
    """The calls are opened once, and closed once no request waits."""
    wire = server.connect(get("/sleep?s=0.3"))
    server.wait_for("/waits?name=")
    assert server.log.read_text().count("loop_calls") == 1
    server.signal(signal.SIGTERM)
    assert wire.response().body == b"slept"
    assert server.wait() == 0
    assert server.log.read_text().count("close_calls") == 1


def test_killed_master_leaves_the_port_and_no_worker(server):
    """The worker of a killed master drains, as at SIGTERM, and ends."""
    (worker,) = server.workers()
    wire, idle = server.connect(get("/sleep?s=0.8")), server.connect()
    assert idle.ask(get("/waits?name=")).status == 200
    server.process.kill()
    server.process.wait()
    until(server.is_refusing)
    response = idle.ask(post("/echo", b"in time"))
    assert (response.body, response.closes()) == (b"in time", True)
    assert wire.response().body == b"slept"
    until(lambda: not lives(worker))
    assert_clean(server.log)


def test_busy_client_does_not_keep_the_worker_of_a_killed_master(server):
    """A client that keeps sending gets a response that says close."""
    (worker,) = server.workers()
    busy = server.connect()
    assert not busy.ask(get("/echo")).closes()
    server.process.kill()
    server.process.wait()
    until(lambda: busy.ask(get("/echo")).closes())
    assert busy.has_ended()
    until(lambda: not lives(worker))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_sigint_and_sigquit_end_quickly(server, number):
    """The worker waits for no request; pending ones may get a response."""
    (wire,) = server.hold("quick")
    began_at = time.monotonic()
    server.signal(number)
    assert server.wait() == 0
    assert time.monotonic() - began_at < 5
    with contextlib.suppress(ConnectionError):
        assert [each.status for each in wire.all_responses()] in ([], [503])
    assert "hook worker_int" in server.log.read_text()


def test_sigterm_of_a_worker_alone_drains_it(server):
    """The master replaces it, and its clients are answered."""
    (worker,) = server.workers()
    wire = server.connect(get("/sleep?s=0.5"))
    server.wait_for("/waits?name=")
    os.kill(worker, signal.SIGTERM)
    assert wire.response().body == b"slept"
    until(lambda: not lives(worker))
    until(lambda: server.workers() not in ([], [worker]))
    assert server.ask(get("/echo")).status == 200


def test_sighup_loses_no_request(server):
    """While workers are replaced each request on a kept connection is answered."""
    wires = [server.connect() for _ in range(4)]
    before = set(server.workers())
    server.signal(signal.SIGHUP)
    while not before.isdisjoint(server.workers()):
        for place, wire in enumerate(wires):
            response = wire.ask(post("/echo", b"%d" % place))
            assert response.body == b"%d" % place
            if response.closes():
                wire.close()
                wires[place] = server.connect()
