"""Connections whose clients go on sending behind their last answer."""

import socket
import struct

import pytest

from tests.support.clocks import standing_clock
from tests.support.in_turn import looping, post
from tests.support.tls import server_context

LAST = post("/last", b"", "Connection: close")


@pytest.fixture(name="loop", params=["plain", "TLS"])
def _loop(request):
    """A worker whose clients speak plainly, or under TLS."""
    tls = {
        "certfile": __file__,
        "ssl_context": lambda config, default: server_context(),
    }
    with looping(**(tls if request.param == "TLS" else {})) as loop:
        yield loop


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """The time that lingering connections are looked at by."""
    return standing_clock(monkeypatch, "app.workers.lingering")


def connect(loop):
    client = loop.connect()
    if loop.worker.cfg.is_ssl:
        client.speak_tls()
    return client


def linger(loop):
    """A client that sends on while it is answered, and keeps its end open."""
    client = connect(loop)

    async def last(body, environ, wake):
        send(client, b"more")
        return b"last"

    loop.app.routes["/last"] = last
    client.send(LAST)
    assert client.receive() == (200, b"last")
    assert client.has_ended()
    return client


def send(client, data):
    """Send bytes as they are, on a connection that may have been under TLS."""
    client.sock.setblocking(True)
    socket.socket.sendall(client.sock, data)
    client.sock.setblocking(False)


def test_a_client_that_goes_on_sending_has_its_whole_answer(loop, clock):
    """What it sends is thrown away, and its connection ends when it closes its side."""
    client = linger(loop)
    for _ in range(2):
        send(client, b"and more")
        while not loop.is_idle():
            loop.step()
        assert loop.worker.nr_conns == 1
    client.sock.close()
    loop.until(lambda: loop.worker.nr_conns == 0)


def test_who_lingers_holds_no_thread(loop, clock):
    """However many do, the next request is answered, and each is a connection."""
    for count in range(5):
        assert loop.worker.nr_conns == count
        linger(loop)
    assert loop.worker.tpool._work_queue.empty()
    assert connect(loop).ask("/other", bytes(100_000)) == (200, b"no route")


def test_nobody_lingers_for_long(loop, clock):
    """After two seconds each is closed, whether its client has done so or not."""
    linger(loop)
    clock.now += 1
    linger(loop)
    for now, left in ((101.9, 2), (102, 1), (102.9, 1), (103, 0)):
        clock.now = now
        loop.worker.murder_keepalived()
        assert loop.worker.nr_conns == left
    assert loop.is_idle()


def test_all_that_comes_in_time_is_thrown_away(loop, clock):
    """However much a client sends, it is closed at its time, and not before."""
    client = linger(loop)
    for _ in range(50):
        send(client, bytes(60_000))
        while not loop.is_idle():
            loop.step()
        loop.worker.murder_keepalived()
        assert loop.worker.nr_conns == 1
    clock.now += 2
    loop.worker.murder_keepalived()
    assert loop.worker.nr_conns == 0


def test_a_client_that_has_gone_does_not_linger(loop, clock):
    """A connection that is reset is closed at once."""
    client = linger(loop)
    reset = struct.pack("ii", 1, 0)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    client.sock.close()
    loop.until(lambda: loop.worker.nr_conns == 0)


def test_an_answer_that_leaves_nothing_unread_is_closed_at_once(clock):
    """Nobody is waited for where the end of the connection can't be a reset."""
    with looping() as loop:
        client = connect(loop)
        client.send(LAST)
        assert client.receive() == (200, b"no route")
        assert loop.worker.nr_conns == 0
        assert client.has_ended()


@pytest.mark.parametrize(
    "begin",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n",
        b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["length", "chunks"],
)
def test_an_answer_before_the_body_is_not_reset_by_it(clock, begin):
    """Who is answered while a body is on its way lingers, though none of it is here."""

    async def refuse(environ, start_response, wake):
        start_response("404 NOT FOUND", [("Content-Length", "4")])
        return [b"none"]

    with looping() as loop:
        loop.app.on_shared_thread = refuse
        client = connect(loop)
        client.send(begin)
        assert client.receive() == (404, b"none")
        assert client.has_ended()
        client.send(b"4\r\nbody\r\n")
        while not loop.is_idle():
            loop.step()
        assert loop.worker.nr_conns == 1
