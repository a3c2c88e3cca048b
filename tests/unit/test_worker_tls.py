"""Connections under TLS, of which threads read and the main loop only waits."""

import socket
import struct

import pytest

from app.coroutines import until
from app.workers.patient import PatientTls
from tests.support.in_turn import Promise, looping, post
from tests.support.tls import server_context


def context_of(config, default):
    context = server_context()
    context.sslsocket_class = PatientTls
    return context


@pytest.fixture(name="loop")
def _loop():
    """A worker whose clients speak TLS."""
    with looping(certfile=__file__, ssl_context=context_of) as loop:
        yield loop


@pytest.fixture(name="client")
def _client(loop):
    """One that has shaken hands."""
    client = loop.connect()
    client.speak_tls()
    return client


def test_half_a_header_behind_a_request_holds_no_thread(loop, client):
    """What comes in one record with a request waits as what comes alone does."""
    second = post("/second")
    client.send(post("/first") + second[:9])
    assert client.receive() == (200, b"no route")
    loop.until(lambda: loop.worker.pending_conns)
    client.send(second[9:])
    assert client.receive() == (200, b"no route")


def large_answer(loop):
    """Have /large answer with more than the kernel takes; gives its bytes."""
    data = bytes(range(256)) * (1 << 16)

    async def large(body, environ, wake):
        return data

    loop.app.routes["/large"] = large
    return data


def test_large_answers_wait_for_their_clients_without_a_thread(loop, client):
    """More clients than threads take nothing; another goes on, and all get all."""
    data = large_answer(loop)
    slow = [client, loop.connect(), loop.connect()]
    for number, each in enumerate(slow, 1):
        if each is not client:
            each.speak_tls()
        each.send(post("/large"))
        loop.until(lambda number=number: len(loop.worker._sending._left) == number)
    other = loop.connect()
    other.speak_tls()
    assert other.ask("/other") == (200, b"no route")
    for each in slow:
        assert each.receive() == (200, data)
        assert each.ask("/next", bytes(100_000)) == (200, b"no route")


@pytest.mark.parametrize("path", ["/wait", "/large"])
def test_a_client_that_resets_its_connection_costs_nobody_else(loop, client, path):
    """It ends its own connection, before its answer or in the middle of it."""
    large_answer(loop)
    promise = Promise()

    async def wait(body, environ, wake):
        await until(promise)
        return b"too late"

    loop.app.routes["/wait"] = wait
    client.send(post(path))
    loop.until(lambda: loop.worker._turns or loop.worker._sending._left)
    # Closed so, a connection is reset.
    at_once = struct.pack("ii", 1, 0)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    client.sock.close()
    promise.told = True
    loop.worker._told([promise])
    loop.until(lambda: loop.worker.nr_conns == 0)
    other = loop.connect()
    other.speak_tls()
    assert other.ask("/other") == (200, b"no route")
