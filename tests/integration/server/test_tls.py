"""TLS: slow handshakes, large bodies, lingering close and graceful shutdown."""

import contextlib
import signal

import pytest

from tests.support.front import front, get, post, request, until

LARGE = 8 << 20
HALF_HANDSHAKE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture(scope="module")
def server():
    with front("--threads=2", tls=True) as server:
        yield server


def test_scheme_is_https(connect):
    """A proxy's word for it is not needed."""
    wire = connect()
    for _ in range(2):
        assert wire.ask(get("/show")).json()["scheme"] == "https"


@pytest.mark.parametrize("sent", [b"", HALF_HANDSHAKE], ids=["none", "half"])
def test_slow_handshakes_hold_no_thread_and_no_other_client(server, connect, sent):
    """While many clients are in their handshake others are answered."""
    threads = server.threads()
    slow = [connect(sent, tls=False) for _ in range(30)]
    for _ in range(3):
        assert connect().ask(post("/echo", b"hello")).body == b"hello"
    assert server.threads() == threads
    if not sent:
        # It was slow, and not too slow.
        slow[0].shake_hands()
        assert slow[0].ask(get("/echo")).status == 200
    for wire in slow:
        wire.close()
    until(lambda: server.connections() == 3, server.connections)


def test_slow_handshake_is_closed_after_its_timeout():
    """A handshake may take some seconds, here half a one."""
    timeouts = {"tls_handshake_s": 0.5}
    with front("--threads=2", tls=True, timeouts=timeouts) as server:
        slow = [server.connect(sent, tls=False) for sent in (b"", HALF_HANDSHAKE)]
        other = server.connect()
        assert [wire.is_broken() for wire in slow] == [True] * 2
        assert other.ask(get("/echo")).status == 200
        until(lambda: server.connections() == 1, server.connections)


def test_half_handshakes_count_as_connections():
    """worker_connections bounds them, too, and they are given up."""
    timeouts = {"tls_handshake_s": 0.5}
    args = ("--threads=2", "--worker-connections=4")
    with front(*args, tls=True, timeouts=timeouts) as server:
        slow = [server.connect(tls=False) for _ in range(6)]
        assert server.connect().ask(get("/echo")).status == 200
        for wire in slow:
            wire.close()


@pytest.fixture(name="small", scope="module")
def _small():
    """A server of four connections, which gives handshakes a minute."""
    timeouts = {"tls_handshake_s": 60}
    args = ("--threads=2", "--worker-connections=4")
    with front(*args, tls=True, timeouts=timeouts) as server:
        yield server


@pytest.mark.parametrize("sent", [b"", HALF_HANDSHAKE], ids=["none", "half"])
def test_stalled_handshakes_at_the_limit_are_ended_for_new_clients(small, sent):
    """After a second they make room, long before their timeout."""
    slow = [small.connect(sent, tls=False) for _ in range(6)]
    assert small.connect().ask(get("/echo")).status == 200
    assert any(wire.is_broken() for wire in slow[:4])
    small.close_wires()
    until(lambda: small.connections() == 0, small.connections)


@pytest.mark.parametrize("sent", [get("/echo"), b"\0" * 100, b"\x15\x03\x01\0\2\2\x28"])
def test_failed_handshake_ends_the_connection(server, connect, sent):
    """Plain HTTP on a TLS port is refused, and other clients are served."""
    wire = connect(sent, tls=False)
    wire.end_sending()
    with contextlib.suppress(ConnectionError):
        assert b"HTTP/1.1 200" not in wire.rest()
    assert connect().ask(get("/echo")).status == 200


def test_bodies_and_responses_of_any_size_are_whole(connect):
    """Bytes in many records arrive in order, both ways."""
    wire = connect()
    body = bytes(range(256)) * (LARGE // 256)
    assert wire.ask(post("/echo", body)).body == body


def test_half_a_head_in_the_record_of_a_request_is_kept(connect):
    """The rest of a pipelined request may come in the next record."""
    wire, second = connect(), post("/echo", b"second")
    wire.send(post("/echo", b"first") + second[:9])
    assert wire.response().body == b"first"
    wire.send(second[9:])
    assert wire.response().body == b"second"


def test_slow_readers_hold_no_other_client(server, connect):
    """More clients than threads take nothing; all have their whole responses."""
    slow = [
        connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096) for _ in range(3)
    ]
    for wire in slow:
        assert wire.begins() == b"HTTP/1.1 200"
    assert connect().ask(get("/echo")).status == 200
    for wire in slow:
        assert wire.response().body == bytes(LARGE)
        assert wire.ask(post("/echo", bytes(100_000))).body == bytes(100_000)


@pytest.mark.parametrize("target", ["/hold?name=reset", f"/bytes?bytes={LARGE}"])
def test_reset_connection_is_given_back(server, connect, target):
    """A client may go before its response, or in the middle of it."""
    wire = connect(get(target), receive_buffer=4096)
    if target.startswith("/bytes"):
        wire.begins()
    else:
        server.wait_for("/waits?name=reset")
    before = server.connections()
    wire.reset()
    until(lambda: server.connections() < before, server.connections)
    server.release("reset")
    assert connect().ask(get("/echo")).status == 200


def test_client_disconnect_reaches_the_calls(server, connect):
    """An application that waits hears of it when its client closes."""
    wire = connect(get("/watch?name=tls"))
    server.wait_for("/waits?name=tls")
    wire.close()
    server.wait_for("/disconnects?name=tls")


def test_early_refusal_is_read_by_a_client_that_goes_on_sending(connect):
    """Lingering close: what comes behind the last response is thrown away."""
    wire = connect(request("POST", "/refuse", f"Content-Length: {LARGE}"))
    for _ in range(LARGE >> 20):
        wire.send(bytes(1 << 20))
    response = wire.response()
    assert (response.status, response.closes()) == (401, True)


def test_sigterm_answers_all_who_have_sent_or_connected():
    """Clients whose handshake is still to come have a second, as silent ones."""
    with front("--threads=2", tls=True) as server:
        sent = [server.connect(post("/echo", b"%d" % place)) for place in range(20)]
        idle = server.connect()
        assert idle.ask(get("/echo")).status == 200
        connected = [server.connect(tls=False) for _ in range(5)]
        server.signal(signal.SIGTERM)
        until(server.is_refusing)
        for wire in connected:
            wire.shake_hands()
            wire.send(post("/echo", b"late"))
        for place, wire in enumerate(sent):
            assert wire.response().body == b"%d" % place
        for wire in connected:
            assert wire.response().body == b"late"
        assert idle.ask(post("/echo", b"last")).closes()
        assert server.wait() == 0
