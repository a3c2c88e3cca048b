"""Silent and slow clients: header timeout, body timeout, half-open connections."""

import contextlib

import pytest

from tests.support.front import chunk, front, get, post, request, until

POST = request("POST", "/read?name=body", "Content-Length: 1000")
CHUNKED = request("POST", "/read?name=body", "Transfer-Encoding: chunked")
SLOW = {
    "silent": b"",
    "empty lines": b"\r\n\r\n",
    "half a request line": b"POST /ec",
    "half a header": b"POST /echo HTTP/1.1\r\nHost: x\r\nX",
    "no end of the head": b"POST /echo HTTP/1.1\r\nHost: x\r\n",
    "no body": POST,
    "half a body": POST + b"half",
    "no chunk": CHUNKED,
    "half a chunk": CHUNKED + b"5\r\nha",
    "half a trailer": CHUNKED + chunk(b"body") + b"0\r\nA: b",
}


@pytest.fixture(scope="module")
def server():
    with front("--threads=2", "--graceful-timeout=5") as server:
        yield server


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW.keys())
def test_slow_clients_hold_no_thread_and_no_other_client(server, connect, sent):
    """However many stop somewhere in a request, others are answered at once."""
    threads = server.threads()
    slow = [connect(sent) for _ in range(30)]
    other = connect()
    for place in range(10):
        assert other.ask(post("/echo", b"%d" % place)).body == b"%d" % place
    assert connect().ask(get("/echo")).status == 200
    assert server.threads() == threads
    for wire in slow:
        wire.close()
    until(lambda: server.connections() == 2, server.connections)


@pytest.mark.parametrize("beginning", [POST + b"[", CHUNKED + b"5\r\n[1"])
def test_call_whose_body_is_given_up_is_408(connect, beginning):
    """A body timeout is the calls': their 408 is sent, and closes."""
    sent = beginning.replace(b"name=body", b"s=0.2")
    (response,) = connect(sent).all_responses()
    assert (response.status, response.closes()) == (408, True)
    assert response.error() == "the body has not come in time"


def test_body_that_comes_slowly_is_read(connect):
    """A client that is slow, but not too slow, is answered."""
    wire = connect(request("POST", "/read?s=20", "Content-Length: 6"))
    other = connect()
    for part in (b"sl", b"ow", b"ly"):
        assert other.ask(get("/sleep?s=0.05")).status == 200
        wire.send(part)
    assert wire.response().json() == 6


def test_client_that_leaves_in_its_request_is_forgotten(server, connect):
    """Neither a half head nor a half body leaves anything in the log."""
    for resets in (False, True):
        for sent in SLOW.values():
            wire = server.connect(sent)
            (wire.reset if resets else wire.close)()
    until(lambda: server.connections() == 0, server.connections)
    server.wait_for("/waits?name=body", 0)


@pytest.fixture(name="hasty", scope="module")
def _hasty():
    """A server that gives a client half a second for a head, and one between two."""
    with front("--keep-alive=1", timeouts={"header_s": 0.5}) as server:
        yield server


def test_half_a_head_is_closed_after_the_header_timeout(hasty):
    """The time counts from the first byte, and more bytes do not prolong it."""
    slow = [hasty.connect(sent) for sent in list(SLOW.values())[2:5]]
    trickling = hasty.connect(b"GET /echo HTTP/1.1\r\nA: ")
    other = hasty.connect()
    with contextlib.suppress(ConnectionError):
        for _ in range(12):
            assert other.ask(get("/sleep?s=0.1")).status == 200
            trickling.send(b"b")
    for wire in slow:
        assert [each.status for each in wire.all_responses()] in ([], [408])
    with contextlib.suppress(ConnectionError):
        assert [each.status for each in trickling.all_responses()] in ([], [408])


def test_header_timeout_does_not_count_for_the_response(hasty):
    """A head that was there in time may be answered late."""
    wire = hasty.connect(b"GET /sleep?s=1.2 HTTP")
    wire.send(b"/1.1\r\nHost: x\r\n\r\n")
    assert wire.response().body == b"slept"


def test_rest_of_an_unread_body_does_not_shorten_the_send_timeout(hasty):
    """The response's reader may pause for longer than --keep-alive."""
    head = request("POST", "/refuse?bytes=20000000", "Content-Length: 1000")
    wire, other = hasty.connect(head + bytes(500), receive_buffer=4096), hasty.connect()
    assert wire.begins() == b"HTTP/1.1 401"
    wire.send(bytes(500))
    for _ in range(20):
        assert other.ask(get("/sleep?s=0.1")).status == 200
    assert len(wire.response().body) > 20_000_000


@pytest.mark.parametrize("sent", [b"", get("/echo")])
def test_idle_connection_is_closed_after_keep_alive(hasty, sent):
    """--keep-alive bounds the wait for a first request, and for a next one."""
    wire, other = hasty.connect(sent), hasty.connect()
    if sent.startswith(b"GET"):
        assert wire.response().status == 200
    # Not before its time.
    assert other.ask(get("/sleep?s=0.7")).status == 200
    wire.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.sock.recv(1)
    wire.sock.settimeout(20)
    assert wire.has_ended()


def test_request_under_way_outlasts_keep_alive(hasty):
    """A connection whose request is being answered is not idle."""
    wire = hasty.connect()
    assert wire.ask(get("/sleep?s=1.6")).body == b"slept"


def test_client_disconnect_reaches_the_calls(server, connect):
    """An application that waits hears of it when its client closes."""
    for resets in (False, True):
        name = f"closed{resets}"
        wire = connect(get(f"/watch?name={name}"))
        server.wait_for(f"/waits?name={name}")
        (wire.reset if resets else wire.close)()
        server.wait_for(f"/disconnects?name={name}")


def test_client_disconnect_behind_a_pipelined_request_reaches_the_calls(
    server, connect
):
    """Unread bytes do not hide that the client disconnected."""
    wire = connect(get("/watch?name=behind"))
    server.wait_for("/waits?name=behind")
    wire.send(get("/echo"))
    assert server.found("/disconnects?name=behind") == 0
    wire.close()
    server.wait_for("/disconnects?name=behind")


def test_pipelined_request_is_no_disconnect(server, connect):
    """A client that has sent its next request already is there, and so is that."""
    wire = connect(get("/watch?name=piped") + post("/echo", b"next"))
    server.wait_for("/waits?name=piped")
    server.release("piped")
    assert [each.body for each in wire.responses(2)] == [b"watched", b"next"]
    assert server.found("/disconnects?name=piped") == 0


def test_half_closed_connection_counts_as_a_disconnect_and_is_answered(server, connect):
    """A client that closed its sending side counts as gone, but may still read."""
    wire = connect(get("/watch?name=half"))
    server.wait_for("/waits?name=half")
    wire.end_sending()
    server.wait_for("/disconnects?name=half")
    assert wire.response().body == b"watched"
    assert wire.has_ended()


@pytest.mark.parametrize(
    "sent", [post("/echo", b"last"), get("/sleep?s=0.2"), get("/next")]
)
def test_client_that_closes_its_side_behind_a_request_is_answered(connect, sent):
    """A client may close its sending side and wait for the response."""
    wire = connect(post("/echo", b"first") + sent)
    wire.end_sending()
    first, last = wire.all_responses()
    assert first.body == b"first"
    assert last.status == 200
    assert last.body


def test_requests_wait_without_a_thread(server, connect):
    """Many more requests than threads wait at a time, and others are answered."""
    threads = server.threads()
    waiting = server.hold("many", 50)
    assert server.threads() == threads
    other = connect()
    assert other.ask(post("/echo", b"hello")).body == b"hello"
    server.release("many")
    assert {wire.response().body for wire in waiting} == {b"many"}


@pytest.mark.parametrize("then", ["sends", "closes"])
@pytest.mark.parametrize("kind", ["close", "pipelined"])
def test_event_that_comes_with_the_response_is_harmless(server, connect, kind, then):
    """A client may send or close in the same round of the loop as it is answered."""
    name = f"{kind} {then}".replace(" ", "-")
    headers = ["Connection: close"] if kind == "close" else []
    behind = post("/echo", b"second") if kind == "pipelined" else b""
    wire, control = connect(), connect()
    wire.send(get(f"/hold?name={name}", *headers), behind)
    server.wait_for(f"/waits?name={name}")
    blocking = server.block(name, 0.2)
    control.send(get(f"/release?name={name}"))
    if then == "sends":
        wire.send(post("/echo", b"third"))
    else:
        wire.close()
    assert blocking.response().body == b"blocked"
    assert control.response().status == 200
    assert connect().ask(get("/echo")).status == 200
    if then == "sends":
        assert wire.response().body == name.encode()
    if (kind, then) == ("pipelined", "sends"):
        assert [each.body for each in wire.responses(2)] == [b"second", b"third"]


def test_half_closed_connection_does_not_keep_the_loop_busy(server, connect):
    """A client that has closed its side and waits takes no CPU time."""
    wires = server.hold("spin", 3)
    for wire in wires:
        wire.end_sending()
    cpu_s = server.cpu_s()
    assert connect().ask(get("/sleep?s=0.6")).body == b"slept"
    assert server.cpu_s() - cpu_s < 0.3
    server.release("spin")
    assert [wire.response().body for wire in wires] == [b"spin"] * 3
