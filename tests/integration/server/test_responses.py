"""Responses: header lines, errors of the calls, slow readers, lingering close."""

import pytest

from tests.support.front import chunk, chunked, front, get, post, request, until

CLOSE = "Connection: close"
ERROR = b'{"error": "internal error; the server\'s log has more"}'
LARGE = 32 << 20


@pytest.fixture(scope="module")
def server():
    # The application raises here on purpose.
    with front("--threads=2", clean=False) as server:
        yield server


def test_response_repeats_header_lines_of_the_reply(connect):
    """A header that comes twice, such as Set-Cookie, is sent twice."""
    response = connect().ask(post("/lines", b"Set-Cookie: a=b\r\nSet-Cookie: a=b\r\n"))
    assert response.headers.count(("set-cookie", "a=b")) == 2
    assert response.header("content-type") == "application/json"
    assert response.json() == "body"


@pytest.mark.parametrize("code", [400, 408])
def test_reply_may_close_the_connection(connect, code):
    """Connection: close in an error's reply ends the connection, and is sent once."""
    wire = connect()
    response = wire.ask(post(f"/lines?code={code}", b"Connection: close\r\nA: b\r\n"))
    assert (response.status, response.header("connection")) == (code, "close")
    assert response.header("a") == "b"
    assert wire.has_ended()


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_length_of_a_reply_is_that_of_its_body_but_for_head(connect, method):
    """A response to HEAD may tell the length of a body that was not made."""
    lines = b"Content-Length: 99\r\n"
    wire = connect()
    head = request(method, "/lines?code=400", f"Content-Length: {len(lines)}")
    response = wire.ask(head + lines)
    assert response.header("content-length") == ("99" if method == "HEAD" else "6")
    assert wire.ask(post("/echo", b"next")).body == b"next"


def test_reply_without_a_type_has_a_length(connect):
    """Only 204 and 304 end without one."""
    wire = connect()
    response = wire.ask(get("/status?code=200"))
    assert (response.header("content-length"), response.body) == ("0", b"")
    assert wire.ask(post("/echo", b"next")).body == b"next"


def test_calls_that_fail_are_500_and_close(server, connect):
    """An error is JSON that tells nothing; the log tells more."""
    (other,) = server.hold("failing")
    for sent in (get("/fail"), chunked("/fail", b"body")):
        # The second time its head is known.
        for _ in range(2):
            wire = connect()
            response = wire.ask(sent)
            assert (response.status, response.body) == (500, ERROR)
            assert response.error()
            assert response.closes()
            assert wire.has_ended()
    assert "KeyError: '/secret/path'" in server.log.read_text()
    server.release("failing")
    assert other.response().status == 200


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


def test_request_behind_a_response_that_is_not_read_is_answered(connect):
    """A pipelined request waits for the end of the response before it."""
    wire = connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
    assert wire.begins() == b"HTTP/1.1 200"
    wire.send(post("/echo", b"behind"))
    assert len(wire.response().body) == LARGE
    assert wire.response().body == b"behind"


@pytest.mark.parametrize("resets", [False, True])
def test_client_that_leaves_in_a_response_leaves_no_connection(server, connect, resets):
    """Its connection is given back, and the next client is answered."""
    wire = connect(get(f"/bytes?bytes={LARGE}"), receive_buffer=4096)
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
    with front(timeouts={"send_s": 1.0}) as server:
        yield server
