"""Responses: streams, errors of the application, slow readers, lingering close."""

import re

import pytest

from tests.support.front import chunk, front, get, post, request, until

CLOSE = "Connection: close"
ERROR = b'{"error": "internal error; the server\'s log has more"}'
SIZE = 64 << 10
LARGE = 32 << 20


@pytest.fixture(scope="module")
def server():
    # The application raises here on purpose.
    with front("--threads=2", clean=False) as server:
        yield server


def test_streamed_response_is_chunked(connect):
    """A response without a length goes in chunks, and keeps the connection."""
    wire = connect()
    for _ in range(2):
        response = wire.ask(get("/stream?pieces=3&size=5"))
        assert response.header("transfer-encoding") == "chunked"
        assert response.body == b"000001111122222"
    assert wire.ask(get("/stream?pieces=0")).body == b""


@pytest.mark.parametrize("headers", [[], ["Connection: keep-alive"]])
def test_streamed_response_to_http_1_0_ends_with_the_connection(connect, headers):
    """A client of HTTP/1.0 knows no chunks."""
    wire = connect(get("/stream?pieces=3&size=5", *headers, version="1.0"))
    response = wire.response()
    assert not response.header("transfer-encoding")
    assert response.header("connection").lower() != "keep-alive"
    assert response.body == b"000001111122222"


def test_parts_of_a_stream_are_sent_at_once(server, connect):
    """The first part arrives while the application makes the next one."""
    wire = connect(get("/stream?pieces=2&size=4&until=parts"))
    head = b""
    while b"\r\n\r\n4\r\n0000\r\n" not in head:
        head += wire.exactly(1)
    server.release("parts")
    assert wire.exactly(14) == b"4\r\n1111\r\n0\r\n\r\n"


def test_response_repeats_headers_of_the_application(connect):
    """A header that comes twice, such as Set-Cookie, is sent twice."""
    response = connect().ask(post("/headers?n=2", b"Set-Cookie:a=b"))
    assert response.headers.count(("set-cookie", "a=b")) == 2


def test_application_may_close_the_connection(connect):
    """Connection: close in a response ends the connection."""
    wire = connect()
    response = wire.ask(post("/headers", b"Connection:close"))
    assert response.closes()
    assert wire.has_ended()


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: b", b"a\nX-Evil: b", b"a\rX-Evil: b"])
def test_header_value_with_a_line_end_adds_no_header(connect, value):
    """A line end in a value would be a header, or a response, of its own."""
    wire = connect(post("/headers", b"X-Value:" + value))
    assert wire.begins()
    assert re.search(rb"[\r\n]X-Evil", wire.head(), re.IGNORECASE) is None


@pytest.mark.parametrize("path", ["/fail", "/fail?after=headers", "/silent"])
def test_application_that_fails_is_500_and_closes(server, connect, path):
    """An error before the body is JSON that tells nothing; the log tells more."""
    (other,) = server.hold(path)
    wire = connect()
    response = wire.ask(get(path))
    assert (response.status, response.body) == (500, ERROR)
    assert response.error()
    assert response.closes()
    assert wire.has_ended()
    if path != "/silent":
        assert "KeyError: '/secret/path'" in server.log.read_text()
    server.release(path)
    assert other.response().status == 200


def test_application_that_fails_in_the_body_ends_the_connection(connect):
    """A client sees that the response is not whole."""
    wire = connect(get("/fail?after=part"))
    with pytest.raises((AssertionError, ConnectionError)):
        wire.response()


def test_response_shorter_than_its_length_ends_the_connection(connect):
    """A client does not wait for the rest, nor take the next response for it."""
    wire = connect(get("/length?bytes=4") + get("/echo"))
    with pytest.raises((AssertionError, ConnectionError)):
        wire.response()


def test_response_longer_than_its_length_is_no_second_response(connect):
    """What is too much is not sent, or ends the connection."""
    wire = connect(get("/length?bytes=40") + post("/echo", b"next", CLOSE))
    if wire.head().startswith(b"HTTP/1.1 200"):
        assert wire.exactly(10) == b"x" * 10
    assert b"xx" not in wire.rest()


def test_large_response_is_whole(connect):
    """Bytes beyond the kernel's buffers follow when the client reads."""
    wire = connect(get(f"/bytes?bytes={LARGE}") + post("/echo", b"next"))
    assert wire.response().body == bytes(LARGE)
    assert wire.response().body == b"next"


def test_slow_readers_hold_no_thread_and_no_other_client(server, connect):
    """While clients read nothing of large responses others are answered."""
    threads = server.threads()
    slow = [
        connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096) for _ in range(4)
    ]
    assert [wire.begins() for wire in slow] == [b"HTTP/1.1 200"] * 4
    other = connect()
    for place in range(20):
        assert other.ask(post("/echo", b"%d" % place)).body == b"%d" % place
    assert server.threads() == threads
    for wire in slow:
        assert len(wire.response().body) == LARGE
        assert wire.ask(post("/echo", b"next")).body == b"next"


def test_slow_reader_suspends_the_application(server, connect):
    """A stream is not made faster than its client reads it."""
    pieces = 1024
    target = f"/stream?pieces={pieces}&size={SIZE}&name=slow"
    wire = connect(get(target), receive_buffer=4096)
    until(lambda: server.found("/sent?name=slow") > 1)
    for _ in range(30):
        assert server.found("/sent?name=slow") < pieces
    assert len(wire.response().body) == pieces * SIZE
    assert server.found("/sent?name=slow") == pieces


def test_request_behind_a_response_that_is_not_read_is_answered(connect):
    """A pipelined request waits for the end of the response before it."""
    wire = connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    wire.send(post("/echo", b"behind"))
    assert len(wire.response().body) == LARGE
    assert wire.response().body == b"behind"


@pytest.mark.parametrize("target", [f"/bytes?bytes={LARGE}", "/stream?pieces=1000"])
@pytest.mark.parametrize("resets", [False, True])
def test_client_that_leaves_in_a_response_leaves_no_connection(
    server, connect, target, resets
):
    """Its connection is given back, and the next client is answered."""
    wire = connect(get(target), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    before = server.connections()
    (wire.reset if resets else wire.close)()
    until(lambda: server.connections() < before, server.connections)
    assert connect().ask(get("/echo")).status == 200


def test_slow_reader_is_given_up_after_the_send_timeout(slow_limits):
    """A client that takes nothing for 30 s, here for 1 s, loses its connection."""
    wire = slow_limits.connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    assert slow_limits.connections() == 1
    until(lambda: slow_limits.connections() == 0)
    with pytest.raises((AssertionError, ConnectionError)):
        wire.response()


def test_slow_reader_that_goes_on_is_not_given_up(slow_limits):
    """The send timeout begins anew with each part that a client takes."""
    wire = slow_limits.connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    other = slow_limits.connect()
    for _ in range(6):
        # Six times a third of the send timeout.
        assert other.ask(get("/sleep?s=0.33")).status == 200
        wire.take(2 << 20)
    assert wire.response().body == bytes(LARGE)


@pytest.mark.parametrize("code", [401, 413])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_early_refusal_is_read_by_a_client_that_goes_on_sending(connect, code, framing):
    """Lingering close: a client that sends 32 MiB first has its response."""
    if framing == "length":
        wire = connect(
            request("POST", f"/refuse?code={code}", f"Content-Length: {LARGE}")
        )
        piece = bytes(1 << 20)
    else:
        head = request("POST", f"/refuse?code={code}", "Transfer-Encoding: chunked")
        wire = connect(head)
        piece = chunk(bytes(1 << 20))
    for _ in range(LARGE >> 20):
        wire.send(piece)
    response = wire.response()
    assert (response.status, response.closes()) == (code, True)
    assert response.error() == "no"
    assert wire.has_ended()


def test_malformed_request_is_read_by_a_client_that_goes_on_sending(connect):
    """A client that sends on behind a malformed request has its response, too."""
    wire = connect(b"NONSENSE\r\n\r\n")
    for _ in range(8):
        wire.send(bytes(1 << 20))
    assert wire.response().error()


def test_lingering_connection_holds_no_other_client(server, connect):
    """The next client is answered while more clients than threads keep sending."""
    head = request("POST", "/refuse", f"Content-Length: {LARGE}")
    slow = [connect(head) for _ in range(5)]
    for wire in slow:
        assert wire.response().closes()
        wire.send(bytes(1000))
    assert connect().ask(get("/echo")).status == 200
    for wire in slow:
        wire.close()


@pytest.mark.parametrize("resets", [False, True])
def test_lingering_close_ends_when_the_client_closes(server, resets):
    """The connection is given back at once, and not after the time for lingering."""
    wire = server.connect(request("POST", "/refuse", f"Content-Length: {LARGE}"))
    assert wire.response().closes()
    wire.send(bytes(1000))
    (wire.reset if resets else wire.close)()
    until(lambda: server.connections() == 0, server.connections)


def test_lingering_close_ends_after_two_seconds(server):
    """Clients that keep their end open, and send nothing, are closed."""
    until(lambda: server.connections() == 0, server.connections)
    wires = [
        server.connect(request("POST", "/refuse", f"Content-Length: {LARGE}")),
        server.connect(get("/echo", CLOSE)),
    ]
    for wire in wires:
        assert wire.response().closes()
        # This side stays open.
        assert wire.sock.recv(1) == b""
    until(lambda: server.connections() == 0, server.connections)


@pytest.fixture(name="slow_limits", scope="module")
def _slow_limits():
    """A server that gives a client one second for a part of a response."""
    with front(limits={"SEND_TIMEOUT_S": 1.0}) as server:
        yield server
