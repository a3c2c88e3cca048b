"""Requests read straight from the socket: whole, in time, and none of the next one."""

import gc
import socket
import weakref
from types import SimpleNamespace

import pytest
from gunicorn.config import Config
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.unreader import SocketUnreader

from app.workers.body import BoundedChunks, DirectBody, read_directly
from app.workers.unreader import TimelyUnreader, limit_sending
from tests.support.clocks import standing_clock

CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def wire():
    """The client's end of a connection, and the reader of the server's."""
    client, server = socket.socketpair()
    with client, server:
        unreader = TimelyUnreader(server)
        unreader.begin_body(10)
        yield client, unreader


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless it is set."""
    return standing_clock(monkeypatch, "app.workers.unreader")


def never():
    raise AssertionError("given up")


def chunked(wire, *parts):
    """A body in chunks, read as the server does, and the request that it is of."""
    client, unreader = wire
    client.sendall(CHUNKED + b"".join(parts))
    unreader.begin_header(10)
    request = Request(Config(), unreader, ("127.0.0.1", 1))
    read_directly(request, 10, 1 << 20)
    return request.body, request


@pytest.mark.parametrize("ahead", [0, 1, 9, 10, 15])
@pytest.mark.parametrize("step", [1, 3, 10, 100, -1])
def test_a_body_comes_whole_and_the_rest_stays(wire, ahead, step):
    """Whatever came with the header, the body is whole and the next request intact."""
    client, unreader = wire
    sent = b"0123456789" + b"GET /"
    unreader.unread(sent[:ahead])
    client.sendall(sent[ahead:])
    body = DirectBody(unreader, 10, never)
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


def test_a_body_that_is_here_is_given_as_it_is(wire):
    """A whole body that came with its header is not copied again."""
    unreader = wire[1]
    sent = b"0123456789"
    unreader.unread(sent)
    body = DirectBody(unreader, 10, never)
    assert body.read(10) is sent
    assert body.is_read()
    assert body.read(10) == b""


@pytest.mark.parametrize("sent", [b"", b"0123456789"])
def test_a_request_whose_body_is_read_needs_no_collection(wire, sent):
    """Nothing refers to such a request but who uses it."""
    client, unreader = wire
    client.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent)
    request = Request(Config(), unreader, ("127.0.0.1", 1))
    read_directly(request, 10, 1 << 20)
    assert request.body.read() == sent
    left = weakref.ref(request)
    gc.disable()
    try:
        del request
        assert left() is None
    finally:
        gc.enable()


def test_a_large_body_takes_few_calls(wire):
    """The socket is asked for as much as is wanted, not for 8 KiB at a time."""
    unreader = wire[1]
    asked = []

    def recv_into(view):
        asked.append(len(view))
        view[:] = b"x" * len(view)
        return len(view)

    unreader.sock = SimpleNamespace(recv_into=recv_into, setsockopt=lambda *_: None)
    assert DirectBody(unreader, 200_000, never).read(65_536) == b"x" * 65_536
    assert asked == [65_536]


def test_lines_can_be_read(wire):
    """Reading by lines works, as WSGI asks for."""
    client, unreader = wire
    client.sendall(b"one\ntwo\nthree")
    assert list(DirectBody(unreader, 13, never)) == [b"one\n", b"two\n", b"three"]


def test_a_body_that_is_cut_off_is_no_body(wire):
    """Where the client hangs up too early there is what came, then an error."""
    client, unreader = wire
    client.sendall(b"0123")
    client.close()
    given_up = []
    body = DirectBody(unreader, 10, lambda: given_up.append(True))
    assert body.read(10) == b"0123"
    with pytest.raises(ConnectionResetError, match="cut off"):
        body.read(10)
    assert given_up


@pytest.mark.parametrize("left_s", [0.01, 0, -1])
def test_a_body_that_comes_too_late_is_no_body(wire, left_s):
    """Past its time a body is an error, whether the rest is here or not."""
    client, unreader = wire
    if left_s <= 0:
        client.sendall(b"0123")
    unreader.begin_body(left_s)
    given_up = []
    with pytest.raises(TimeoutError):
        DirectBody(unreader, 10, lambda: given_up.append(True)).read(10)
    assert given_up


def test_an_empty_body_asks_nobody(wire):
    """A body of no bytes does not wait for any."""
    assert DirectBody(wire[1], 0, never).read() == b""


def test_a_body_in_chunks_comes_whole_and_the_rest_stays(wire):
    """Chunks, an extension and a trailer are taken apart; the next request stays."""
    body, request = chunked(
        wire, b"3;a=b\r\n012\r\n", b"2\r\n34\r\n0\r\nDigest: x\r\n\r\nGET /"
    )
    assert body.read() == b"01234"
    assert wire[1].read() == b"GET /"
    assert not request.should_close()


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        (b"zz\r\n", OSError, "chunk size"),
        (b"2\r\n01xx", OSError, "terminator"),
        (b"2\r\n01\r\n0\r\nHost: x\r\n\r\n", ValueError, "trailers"),
        (b"2\r\n01\r\n0\r\n" + b"a: b\r\n" * 101 + b"\r\n", ValueError, "trailers"),
        (b"2;" + b"x" * 200_000, ValueError, "between"),
        (b"2\r\n01\r\n0\r\na: " + b"x" * 200_000, ValueError, "between"),
    ],
)
def test_what_is_not_in_chunks_ends_the_connection(wire, sent, error, text):
    """A broken or endless frame is an error, and what follows is no request."""
    wire[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    body, request = chunked(wire, sent)
    with pytest.raises(error, match=text):
        body.read()
    assert request.should_close()


def test_chunks_that_are_cut_off_are_no_body(wire):
    """Where the client hangs up between two chunks there is an error."""
    body, request = chunked(wire, b"2\r\n01\r\n")
    wire[0].close()
    with pytest.raises(ConnectionResetError, match="cut off"):
        body.read()
    assert request.should_close()


@pytest.mark.parametrize(
    ("sent", "there"),
    [
        (b"", False),
        (b"GET / HTTP/1.1\r\nHost: x", False),
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"x" * (1 << 16), True),
    ],
)
def test_a_header_is_there_when_it_is_whole(wire, sent, there):
    """An unfinished header is kept and not there yet, unless it is too long."""
    client, unreader = wire
    unreader.sock.setblocking(False)
    client.sendall(sent)
    assert unreader.has_header() is there
    assert unreader.take_buffered() == sent


def test_a_client_that_hangs_up_in_its_header_is_left_to_the_parser(wire):
    """The end of the connection counts as a header, so that somebody looks at it."""
    client, unreader = wire
    unreader.sock.setblocking(False)
    client.close()
    assert unreader.has_header()


def test_an_unfinished_header_grows_old(wire, clock):
    """Its age counts from its first bytes; nothing and a whole header have none."""
    client, unreader = wire
    unreader.sock.setblocking(False)
    assert not unreader.has_header()
    clock.now += 50
    assert unreader.header_age_s() == 0
    for piece in (b"GET /", b" HTTP/1.1"):
        client.sendall(piece)
        assert not unreader.has_header()
        clock.now += 2
    assert unreader.header_age_s() == 4
    client.sendall(b"\r\n\r\n")
    assert unreader.has_header()
    assert unreader.header_age_s() == 0


def test_a_header_that_comes_too_late_is_the_end(wire):
    """To the parser a client that is too slow has hung up."""
    unreader = wire[1]
    unreader.begin_header(0.01)
    assert unreader.read() == b""


def test_what_stands_behind_a_request_is_seen(wire):
    """Bytes of the next request that were read with this one show."""
    unreader = wire[1]
    assert not unreader.has_more()
    unreader.unread(b"GET /")
    assert unreader.has_more()


def test_a_client_that_takes_nothing_is_noticed(wire):
    """Sending ends with an error when nothing is taken for so long."""
    server = wire[1].sock
    limit_sending(server, 0.01)
    with pytest.raises(BlockingIOError):
        server.sendall(b"x" * (1 << 24))


def test_bodies_are_read_here_where_the_unreader_is_ours(wire):
    """Bodies of known length and in chunks are; under another unreader none is."""
    ours = wire[1]
    theirs = SocketUnreader(ours.sock)
    for unreader, reader, wanted in (
        (ours, LengthReader(ours, 5), DirectBody),
        (theirs, LengthReader(theirs, 5), Body),
    ):
        request = SimpleNamespace(
            body=Body(reader), unreader=unreader, force_close=never
        )
        read_directly(request, 10, 1 << 20)
        assert isinstance(request.body, wanted)
    request = SimpleNamespace(body=Body(ChunkedReader(None, ours)), unreader=ours)
    read_directly(request, 10, 1 << 20)
    assert isinstance(request.body.reader, BoundedChunks)
