"""Connections under TLS, of which threads read and the main loop only waits."""

import pytest

from app.workers.patient import PatientTls
from tests.support.in_turn import looping, post
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
