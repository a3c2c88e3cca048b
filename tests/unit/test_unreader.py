"""What of a connection's bytes is a whole small POST, for which nobody has to wait."""

import socket
from contextlib import suppress

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import ParseException
from gunicorn.http.message import Request
from hypothesis import example, given
from hypothesis import strategies as st

from app.workers.body import DirectBody, read_directly
from app.workers.quiet_socket import QuietSocket
from app.workers.unreader import TimelyUnreader

POST = b"POST /predict HTTP/1.1\r\n"
LENGTH = b"Content-Length: 4\r\n"
END = b"\r\n"


@pytest.fixture(name="wire")
def _wire():
    """The client's end of a connection, and the reader of the server's."""
    client, server = socket.socketpair()
    with client, QuietSocket.of(server) as sock:
        yield client, TimelyUnreader(sock)


@pytest.mark.parametrize(
    ("sent", "is_small"),
    [
        (POST + LENGTH + END + b"body", True),
        (POST + b"Content-Length: 0\r\n" + END, True),
        (POST + b"CONTENT-length:4 \t\r\nA: b\r\n" + END + b"body", True),
        (POST + LENGTH + END + b"bodyPOST /", True),
        (b"", False),
        (POST, False),
        (POST + LENGTH, False),
        (POST + END + b"body", False),
        (POST + LENGTH + END + b"bod", False),
        (POST + LENGTH + LENGTH + END + b"body", False),
        (POST + LENGTH + b"A: b\r\n" + LENGTH + END + b"body", False),
        (POST + b"Content-Length: 4, 4\r\n" + END + b"body", False),
        (POST + b"X-Content-Length: 4\r\n" + END + b"body", False),
        (POST + b"A: b\r\n " + LENGTH + END + b"body", False),
        (POST + b"Content-Length: 0000000004\r\n" + END + b"body", False),
        (POST + LENGTH + b"Transfer-Encoding: chunked\r\n" + END + b"body", False),
        (POST + LENGTH + b"EXPECT\t: 100-continue\r\n" + END + b"body", False),
        (POST + LENGTH + b"upgrade:h2c\r\n" + END + b"body", False),
        (POST + LENGTH + b"A: b\nExpect: 100-continue\r\n" + END + b"body", False),
        (POST + b"Content-Length: 90\n" + END + LENGTH + END + b"body", False),
        (b"post / HTTP/1.1\r\n" + LENGTH + END + b"body", False),
        (b"PUT / HTTP/1.1\r\n" + LENGTH + END + b"body", False),
        (b"PUT / HTTP/1.1\r\n" + END, False),
        (b"GET / HTTP/1.1\r\n" + END, True),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n" + END, True),
        (b"OPTIONS / HTTP/1.1\r\nContent-Length: 0\r\n" + END, True),
        (b"GET / HTTP/1.1\r\n" + LENGTH + END + b"body", False),
        (b"GET / HTTP/1.1\r\ncontent-length : 4\r\n" + END + b"body", False),
        (b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n" + END, False),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END, False),
        (b"GETS / HTTP/1.1\r\n" + END, False),
        (b"\r\n\r\n" + POST + LENGTH + END + b"body", False),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n" + POST + LENGTH + END + b"body", False),
    ],
)
def test_a_whole_post_of_plain_length_is_small(wire, sent, is_small):
    """What it says is so however the bytes come, and none of them is lost."""
    client, unreader = wire
    for byte in sent[:-1]:
        client.send(bytes([byte]))
        unreader.small_request_lacks()
    client.send(sent[-1:])
    assert (unreader.small_request_lacks() == 0) is is_small
    taken = unreader.take_buffered()
    with suppress(BlockingIOError):
        taken += unreader.sock.recv(1 << 16, socket.MSG_DONTWAIT)
    assert taken == sent


@pytest.mark.parametrize("cut", range(5))
def test_an_empty_line_before_a_request_is_passed_over(wire, cut):
    """However its bytes come, one line end is not of the request that follows."""
    client, unreader = wire
    sent = b"\r\n" + POST + LENGTH + END + b"body"
    client.send(sent[:cut])
    assert unreader.small_request_lacks() is None
    client.send(sent[cut:])
    assert unreader.small_request_lacks() == 0
    assert unreader.take_buffered() == sent[2:]


def test_the_words_of_a_proxy_are_not_passed_over(wire):
    """Their binary form begins with two line ends, both of which are of it."""
    client, unreader = wire
    begin = b"\r\n\r\n\0\r\nQUIT\n"
    for byte in begin:
        client.send(bytes([byte]))
        unreader.has_header()
    taken = unreader.take_buffered()
    with suppress(BlockingIOError):
        taken += unreader.sock.recv(1 << 16, socket.MSG_DONTWAIT)
    assert taken == begin


@pytest.mark.parametrize(
    ("size", "is_small"), [(1 << 16, True), ((1 << 16) + 1, False), (10**8, False)]
)
def test_a_small_body_has_a_limit(wire, size, is_small):
    """A body of more than 64 KiB is not taken."""
    client, unreader = wire
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    client.sendall(POST + b"Content-Length: %d\r\n\r\n" % size)
    client.sendall(bytes(min(size, 1 << 17)))
    assert (unreader.small_request_lacks() == 0) is is_small


@pytest.mark.parametrize(
    "sent",
    [POST + LENGTH + END + b"bod", POST + LENGTH, POST + b"Content-Length: 0\r\n", b""],
)
def test_a_client_that_hung_up_before_the_end_sent_no_whole_post(wire, sent):
    """A request that is cut off is left to who says so to the client."""
    client, unreader = wire
    client.sendall(sent)
    client.shutdown(socket.SHUT_WR)
    assert unreader.small_request_lacks() is None


def test_a_client_that_hung_up_behind_its_post_sent_a_whole_one(wire):
    """Who has said all may close its side, and waits for the answer."""
    client, unreader = wire
    client.sendall(POST + LENGTH + END + b"body")
    client.shutdown(socket.SHUT_WR)
    assert unreader.small_request_lacks() == 0


def test_the_parser_is_given_a_header_without_its_body(wire):
    """A header that is here is read alone, and what follows it after that."""
    client, unreader = wire
    client.sendall(POST + LENGTH + END + b"body" + POST + END + END)
    assert unreader.small_request_lacks() == 0
    assert unreader.read() == POST + LENGTH + END
    assert unreader.read() == b"body" + POST + END + END


def test_a_header_known_before_is_no_end(wire):
    """Who takes all that is here, and then reads, reads what comes next."""
    client, unreader = wire
    client.sendall(POST + LENGTH + END + b"body")
    assert unreader.has_header()
    unreader.take_buffered()
    client.sendall(b"more")
    unreader.begin_header(10)
    assert unreader.read() == b"more"


@pytest.mark.parametrize("ahead", [b"", b"ahead"])
def test_what_is_given_back_stands_first(wire, ahead):
    """Bytes given back are read before those that were behind them."""
    unreader = wire[1]
    unreader.unread(ahead)
    unreader.unread(b"back")
    unreader.unread(b"")
    assert unreader.has_more()
    assert unreader.read(3) == b"bac"
    assert unreader.read() == b"k" + ahead
    assert not unreader.has_more()


PIECES = [
    *(POST, LENGTH, END, b"\r\n\r\n", b"\n", b"\r", b" ", b"\t", b":", b"body", b"x"),
    *(b"POST ", b"POST / HTTP/1.0\r\n", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n"),
    *(b"POST / HTTP/1.1\n", b"Content-Length: 90\n", b"Content-Length:0\r\n"),
    *(b"Content-Length: 90\r\n", b"Content-Length : 9\r\n", b"content-length: 4 \r\n"),
    *(b"Content_Length: 90\r\n", b" Content-Length: 9\r\n", b"A: b\r\n c\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n"),
    *(b"Transfer-Encoding : chunked\r\n", b"A: b\nTransfer-Encoding: chunked\r\n"),
    *(b"4\r\nbody\r\n0\r\n\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n"),
    *(b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", b"\0", b"\xff" * 90, b"A: b\r\n" * 120),
    *(b"Content-Length: 4", b"\r\nContent-Length: 4", b"A" * 9000),
]
SETTINGS = [
    {},
    {"http_parser": "python"},
    {"http_parser": "python", "strip_header_spaces": True},
    {"http_parser": "python", "permit_obsolete_folding": True},
    {"proxy_protocol": "auto", "header_map": "dangerous"},
]


def configured(**settings):
    config = Config()
    for name, value in settings.items():
        config.set(name, value)
    return config


CONFIGS = [configured(**settings) for settings in SETTINGS]
some = st.lists(st.sampled_from(PIECES), max_size=8)
likely = st.lists(st.sampled_from(PIECES), max_size=3).map(
    lambda middle: [POST, *middle, LENGTH, END, b"body"]
)
pieces = st.one_of(some, likely, st.builds(list.__add__, likely, some))


@given(pieces, st.integers(0, 40), st.booleans(), st.sampled_from(CONFIGS))
@example([POST, LENGTH, END, b"body"], 0, False, CONFIGS[0])
@example([POST, LENGTH, END, b"bod"], 0, True, CONFIGS[0])
@example(
    [POST, b"Content-Length: 90\n", END, LENGTH, END, b"body"], 0, False, CONFIGS[0]
)
def test_a_whole_post_is_read_without_a_wait(pieces, cut, ends, config):
    """Gunicorn's parser and the body need no byte more of what is said to be whole."""
    sent = b"".join(pieces)
    client, server = socket.socketpair()
    with client, QuietSocket.of(server) as sock:
        unreader = TimelyUnreader(sock)
        client.sendall(sent[:cut])
        lacks = unreader.small_request_lacks()
        if lacks != 0:
            client.sendall(sent[cut:])
            if ends:
                client.shutdown(socket.SHUT_WR)
            lacks = unreader.small_request_lacks()
        if lacks != 0:
            return
        unreader.begin_header(0)
        try:
            request = Request(config, unreader, ("127.0.0.1", 1))
        except ParseException:
            return
        read_directly(request, 0, 1 << 20)
        assert isinstance(request.body, DirectBody)
        assert not request._expected_100_continue
        while request.body.read(3):
            pass
        assert request.body.is_read()
