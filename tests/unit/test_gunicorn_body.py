"""A body read straight from the socket: whole, and not a byte of the next request."""

import socket
from types import SimpleNamespace

import pytest
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.unreader import IterUnreader, SocketUnreader

from app.gunicorn_body import DirectBody, read_directly


@pytest.fixture
def wire():
    """The client's end of a connection, and the reader of the server's."""
    client, server = socket.socketpair()
    server.settimeout(10)
    with client, server:
        yield client, SocketUnreader(server)


@pytest.mark.parametrize("ahead", [0, 1, 9, 10, 15])
@pytest.mark.parametrize("step", [1, 3, 10, 100, -1])
def test_a_body_comes_whole_and_the_rest_stays(wire, ahead, step):
    """Whatever came with the header, the body is whole and the next request intact."""
    client, unreader = wire
    sent = b"0123456789" + b"GET /"
    unreader.unread(sent[:ahead])
    client.sendall(sent[ahead:])
    body = DirectBody(unreader, 10)
    if step < 0:
        assert body.read() == b"0123456789"
    else:
        pieces = []
        while piece := body.read(step):
            assert len(piece) <= step
            pieces.append(piece)
        assert b"".join(pieces) == b"0123456789"
    assert body.read(1024) == b""
    rest = unreader.read()
    assert rest + (unreader.read() if len(rest) < 5 else b"") == b"GET /"


def test_a_large_body_takes_few_calls(wire):
    """The socket is asked for as much as is wanted, not for 8 KiB at a time."""
    unreader = wire[1]
    asked = []

    def recv_into(view):
        asked.append(len(view))
        view[:] = b"x" * len(view)
        return len(view)

    unreader.sock = SimpleNamespace(recv_into=recv_into)
    assert DirectBody(unreader, 200_000).read(65_536) == b"x" * 65_536
    assert asked == [65_536]


def test_lines_can_be_read(wire):
    """Reading by lines works, as WSGI asks for."""
    client, unreader = wire
    client.sendall(b"one\ntwo\nthree")
    assert list(DirectBody(unreader, 13)) == [b"one\n", b"two\n", b"three"]


def test_a_client_that_hangs_up_ends_the_body(wire):
    """Of a body that never comes whole there is what came, and then the end."""
    client, unreader = wire
    client.sendall(b"0123")
    client.close()
    body = DirectBody(unreader, 10)
    assert body.read(10) == b"0123"
    assert body.read(10) == b""


def test_an_empty_body_asks_nobody(wire):
    """A body of no bytes does not wait for any."""
    assert DirectBody(wire[1], 0).read() == b""


def test_only_bodies_of_known_length_are_read_so(wire):
    """Bodies in chunks, and those that come from no socket, keep Gunicorn's reader."""
    for reader, direct in (
        (LengthReader(wire[1], 5), True),
        (LengthReader(IterUnreader([]), 5), False),
        (ChunkedReader(None, wire[1]), False),
    ):
        request = SimpleNamespace(body=Body(reader))
        read_directly(request)
        assert isinstance(request.body, DirectBody) is direct
