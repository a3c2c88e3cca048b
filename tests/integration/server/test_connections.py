"""Connections: worker_connections, keep-alive cap, EMFILE back-off, addresses."""

import contextlib
import os
import resource
import select
import signal
import socket
import time

import pytest

from testing.server import free_port, serving, simulated_models
from tests.support.front import chunk, front, get, post, request, until


@pytest.fixture(name="small_server", scope="module")
def _small_server():
    args = ("--worker-connections=5", "--threads=2", "--keep-alive=75")
    with front(*args) as server:
        yield server


@pytest.fixture(name="small")
def _small(small_server):
    """A server of five connections, of which none is open."""
    until(lambda: small_server.backlog() == small_server.connections() == 0)
    yield small_server
    small_server.close_wires()


def test_worker_connections_bound_the_accepted_connections(small):
    """With 5 the sixth waits in the backlog, and is served when one closes."""
    wires = [small.connect(get("/watch?name=five")) for _ in range(5)]
    until(lambda: small.connections() == 5)
    sixth = small.connect(get("/release?name=five"))
    until(lambda: small.backlog() == 1)
    assert small.connections() == 5
    wires[0].close()
    assert sixth.response().status == 200
    assert [wire.response().body for wire in wires[1:]] == [b"watched"] * 4


@pytest.mark.parametrize("sent", [b"", b"GET /echo HT"])
def test_idle_connections_at_the_limit_are_closed_for_new_clients(small, sent):
    """With 4 idle for a moment the sixth is served, and the oldest is closed."""
    name = f"busy{len(sent)}"
    busy = small.connect(get(f"/watch?name={name}"))
    until(lambda: small.connections() == 1)
    idle = []
    for count in range(2, 6):
        idle.append(small.connect(sent))
        until(lambda count=count: small.connections() == count)
    assert small.connect().ask(get("/echo")).status == 200
    assert [wire.is_open() for wire in idle].count(True) == 3
    assert small.ask(get(f"/release?name={name}")).status == 200
    assert busy.response().body == b"watched"


def test_clients_are_served_beside_as_many_silent_ones_as_connections():
    """1,000 connections that send nothing do not block other clients."""
    with front("--threads=2", "--keep-alive=75") as server:
        silent = [server.connect() for _ in range(1000)]
        until(lambda: server.connections() >= 900)
        for _ in range(100):
            assert server.connect().ask(get("/echo")).status == 200
        assert sum(wire.is_open() for wire in silent) >= 800


STALLED = {
    "half a head": b"GET /echo HTTP/1.1\r\nA: ",
    "no body": request("POST", "/echo", "Content-Length: 100000"),
    "half a body": request("POST", "/echo", "Content-Length: 100000") + b"half",
    "no 100": request("POST", "/echo", "Content-Length: 9999", "Expect: 100-continue"),
    "half a chunk": request("POST", "/echo", "Transfer-Encoding: chunked") + b"fff\r\n",
    "rest of a refused body": request("POST", "/refuse", "Content-Length: 60000"),
    "lingering close": b"NONSENSE\r\n\r\n",
    "unread response": get(f"/bytes?bytes={32 << 20}"),
}


@pytest.mark.parametrize("sent", STALLED.values(), ids=STALLED.keys())
def test_stalled_clients_at_the_limit_are_closed_for_new_clients(small, sent):
    """Clients that send a byte now and then, or read nothing, keep no one waiting."""
    stalled = [small.connect(sent, receive_buffer=4096) for _ in range(5)]
    # The worker accepts it after those.
    new = small.connect(get("/echo"))

    def is_answered():
        for wire in stalled:
            with contextlib.suppress(OSError):
                wire.send(b"x")
        return bool(select.select([new.sock], [], [], 0)[0])

    until(is_answered)
    assert new.response().status == 200


def test_upload_at_the_limit_is_not_closed_for_new_clients(small):
    """A client that sends its body steadily is answered, however long it takes."""
    head = request("POST", "/read", "Transfer-Encoding: chunked")
    upload = small.connect(head)
    for _ in range(4):
        small.connect(head)
    until(lambda: small.connections() == 5)
    size = 0
    for _ in range(5):
        new = small.connect(get("/watch?name=new"))
        while small.backlog():
            upload.send(chunk(bytes(1000)))
            size += 1000
        new.close()
    upload.send(chunk(b""))
    assert upload.response().json() == size


def test_request_that_waits_in_the_kernel_at_the_limit_is_answered(small):
    """A worker that was stopped reads what came before it closes silent clients."""
    silent = [small.connect() for _ in range(5)]
    until(lambda: small.connections() == 5)
    (worker,) = small.workers()
    os.kill(worker, signal.SIGSTOP)
    new = small.connect(get("/echo"))
    for wire in silent:
        wire.send(get("/echo"))
    # Longer than a client may keep a connection waiting at the limit.
    time.sleep(1.2)
    os.kill(worker, signal.SIGCONT)
    for wire in (*silent, new):
        assert wire.response().status == 200


def test_request_that_arrives_after_a_look_is_answered_at_the_limit(small):
    """What was sent since the worker last looked is read before a place is taken."""
    silent = [small.connect() for _ in range(4)]
    blocking = small.connect()
    until(lambda: small.connections() == 5)
    (worker,) = small.workers()
    # So that both are found by the same look.
    os.kill(worker, signal.SIGSTOP)
    blocking.send(get("/block?s=1.5"))
    new = small.connect(get("/echo"))
    # Longer than a client may keep a connection waiting at the limit.
    time.sleep(1.2)
    os.kill(worker, signal.SIGCONT)
    time.sleep(0.2)
    for wire in silent:
        wire.send(get("/echo"))
    for wire in (blocking, *silent, new):
        assert wire.response().status == 200


def test_many_silent_clients_before_a_new_one_are_closed_in_turn(small):
    """As many places are given away at a time as are free, not one each second."""
    for _ in range(30):
        small.connect()
    assert small.connect().ask(get("/echo")).status == 200


def test_health_and_predictions_are_answered_beside_1000_silent_connections(tmp_path):
    """A default server answers within a second, whoever else is connected."""
    models = simulated_models(
        tmp_path, m={"base_ms": 0, "input_shape": [2], "outputs": 2}
    )
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving("--threads=20", model_dir=models))

        def connect():
            sock = socket.create_connection(("127.0.0.1", server.port), 20)
            stack.enter_context(contextlib.closing(sock))

        for _ in range(1000):
            connect()
        # The server gives a place away once its client has been silent for a moment.
        assert server.request("GET", "/healthz").status == 200
        for _ in range(5):
            for _ in range(70):
                connect()
            began_at = time.monotonic()
            assert server.request("GET", "/healthz").status == 200
            assert time.monotonic() - began_at < 1
            began_at = time.monotonic()
            assert server.predict([[1, 2]]).status == 200
            assert time.monotonic() - began_at < 1


def test_keep_alive_cap_leaves_connections_for_other_clients(small):
    """Above worker_connections - threads connections responses say close."""
    wires = [small.connect() for _ in range(5)]
    until(lambda: small.connections() == 5)
    for place, wire in enumerate(wires):
        assert wire.ask(get("/echo")).closes() is (place < 2)
        if place < 2:
            assert wire.has_ended()
            wire.close()
            until(lambda place=place: small.connections() == 4 - place)
    # Two more are accepted while three are idle.
    for _ in range(2):
        wire = small.connect()
        assert wire.ask(get("/echo")).closes()
        assert wire.has_ended()
        wire.close()
        # Else the next one may take the place of an idle one.
        until(lambda: small.connections() == 3)
    for wire in wires[2:]:
        assert wire.ask(get("/echo")).status == 200


def test_keep_alive_0_closes_each_connection():
    """Without keep-alive each response says close."""
    with front("--keep-alive=0", "--threads=2") as server:
        wire = server.connect(get("/sleep?s=0.1"))
        response = wire.response()
        assert (response.body, response.closes()) == (b"slept", True)
        assert wire.has_ended()


def test_emfile_back_off_keeps_the_worker_and_its_connections():
    """Without descriptors clients wait in the backlog, until a connection closes."""
    with front("--threads=2") as server:
        pid = server.worker()
        first = server.connect()
        assert first.ask(get("/echo")).status == 200
        server.limit_descriptors(3)
        wires = [server.connect(get("/hold?name=emfile")) for _ in range(3)]
        until(lambda: first.ask(get("/waits?name=emfile")).json() == 3)
        waiting = [server.connect(post("/echo", b"%d" % place)) for place in range(3)]
        until(lambda: "Too many open files" in server.log.read_text())
        cpu_s = server.cpu_s()
        assert first.ask(get("/sleep?s=0.6")).body == b"slept"
        assert server.cpu_s() - cpu_s < 0.3
        # A line for each failure would fill the disk.
        assert server.log.read_text().count("Too many open files") <= 3
        for wire in wires:
            wire.close()
        first.send(get("/release?name=emfile"))
        assert first.response().status == 200
        for place, wire in enumerate(waiting):
            assert wire.response().body == b"%d" % place
        assert server.worker() == pid


def test_emfile_back_off_ends_when_others_free_descriptors():
    """Clients are accepted again though no connection of the worker has closed."""
    with front("--threads=2") as server:
        pid = server.worker()
        first = server.connect()
        assert first.ask(get("/echo")).status == 200
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        server.limit_descriptors(0)
        second = server.connect(post("/echo", b"second"))
        until(lambda: "Too many open files" in server.log.read_text())
        assert first.ask(get("/echo")).status == 200
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert second.response().body == b"second"


def test_sigterm_without_descriptors_ends_the_server():
    """Clients that can't be accepted are dropped, and others are answered."""
    with front("--threads=2") as server:
        wire = server.connect()
        assert wire.ask(get("/echo")).status == 200
        server.limit_descriptors(0)
        waiting = server.connect(get("/echo"))
        until(lambda: "Too many open files" in server.log.read_text())
        wire.send(get("/sleep?s=0.3"))
        server.signal(signal.SIGTERM)
        assert wire.response().body == b"slept"
        assert waiting.is_broken()
        assert server.wait() == 0


def test_unix_socket(tmp_path):
    """A worker behind a Unix socket has no client address, and trusts its proxy."""
    path = str(tmp_path / "socket")
    with front(address=path) as server:
        wire = server.connect()
        call = wire.ask(get("/show", "X-Forwarded-Proto: https")).json()
        assert (call["client"], call["client_port"]) == ("", 0)
        assert call["scheme"] == "https"
        assert call["server"] == "unix"
        assert wire.ask(post("/echo", bytes(1 << 20))).body == bytes(1 << 20)


def test_several_addresses():
    """Each --bind is served, and drained."""
    port = free_port()
    with front(f"--bind=127.0.0.1:{port}") as server:
        addresses = (server.address, ("127.0.0.1", port))
        wires = [server.connect(address=address) for address in addresses]
        for wire, address in zip(wires, addresses, strict=True):
            call = wire.ask(get("/show")).json()
            assert (call["server"], call["server_port"]) == address
        last = [
            server.connect(get("/sleep?s=0.3"), address=address)
            for address in addresses
        ]
        server.signal(signal.SIGTERM)
        assert [wire.response().body for wire in last] == [b"slept"] * 2
        assert server.wait() == 0


def test_ipv6():
    """Clients are known by their IPv6 address."""
    port = free_port()
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", port))
    except OSError:
        pytest.skip("needs IPv6")
    with front(f"--bind=[::1]:{port}", "--access-logfile=-") as server:
        sock = socket.create_connection(("::1", port), 20)
        with sock:
            sock.sendall(get("/show", "X-Forwarded-Proto: https", "Connection: close"))
            received = sock.makefile("rb").read()
        assert b'"client": "::1", ' in received
        assert b'"scheme": "https"' in received
        until(lambda: "::1 - - [" in server.log.read_text())


def test_connections_are_spread_over_workers():
    """Several workers accept from the same sockets."""
    with front("--workers=3", "--threads=2") as server:
        until(lambda: len(server.workers()) == 3)
        wires = [server.connect(get("/sleep?s=0.05")) for _ in range(200)]
        assert [wire.response().status for wire in wires] == [200] * 200
