"""Requests as the application sees them: HTTP/1.1, HTTP/1.0, keep-alive, pipelining."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.support.front import chunk, chunked, front, get, post, request

CLOSE = "Connection: close"


@pytest.fixture(scope="module")
def server():
    with front("--threads=2") as server:
        yield server


def show(connect, target, *headers):
    """Return what a GET's call says."""
    return connect().ask(get(target, *headers)).json()


def test_head_and_peer_of_a_request(server, connect):
    """A call has the parts of its head in text, and both ends of its connection."""
    wire = connect()
    call = wire.ask(get("/show/a?x=1&y=%20", "Accept: A/b", "accept: c")).json()
    assert call["version"] == "1.1"
    assert call["method"] == "GET"
    assert call["path"] == call["raw_path"] == "/show/a"
    assert call["query"] == "x=1&y=%20"
    assert call["request_id"] == ""
    assert call["headers"] == {"host": "front", "accept": "A/b,c"}
    assert (call["client"], call["client_port"]) == wire.sock.getsockname()
    assert (call["server"], call["server_port"]) == server.address
    assert call["scheme"] == "http"


def test_requests_of_one_connection_share_nothing(connect):
    """Each head is of its own request, however alike they are."""
    wire = connect()
    for place in range(3):
        for headers in ([f"A: {place}"], [f"A: {place}", "B: b"], []):
            call = wire.ask(get(f"/show/{place}?x={place}", *headers)).json()
            assert call["path"] == f"/show/{place}"
            assert call["query"] == f"x={place}"
            sent = [each.split(": ") for each in headers]
            wanted = {name.lower(): value for name, value in sent}
            assert call["headers"] == {"host": "front", **wanted}


@pytest.mark.parametrize(
    ("target", "path", "raw_path"),
    [
        ("/show/a%2Fb%3Ac%20", "/show/a/b:c ", "/show/a%2Fb%3Ac%20"),
        ("/show/%C3%A9", "/show/é", "/show/%C3%A9"),
        ("/show//x/../y/", "/show//x/../y/", "/show//x/../y/"),
        ("/show/100%", "/show/100%", "/show/100%"),
        ("/%73how", "/show", "/%73how"),
    ],
)
def test_percent_encoded_path_keeps_its_raw_path(connect, target, path, raw_path):
    """The path is decoded, and the raw path is as the client sent it."""
    call = show(connect, target)
    assert (call["path"], call["raw_path"]) == (path, raw_path)


def test_path_that_is_not_utf_8_is_answered(connect):
    """Bytes that are no UTF-8 reach the application in the raw path."""
    wire = connect()
    response = wire.ask(get("/show/%FF"))
    assert response.status == 200
    assert response.json()["raw_path"] == "/show/%FF"


@pytest.mark.parametrize(
    "origin", ["http://example.org", "http://[::1]:80", "HTTP://a"]
)
def test_absolute_url_is_reduced_to_its_path(connect, origin):
    """A request as a proxy gets it has the path and the query of its URL."""
    call = show(connect, f"{origin}/show?x=1")
    assert (call["path"], call["query"]) == ("/show", "x=1")
    assert call["raw_path"] == "/show"
    host = origin.partition("//")[2]
    assert call["headers"] == {"host": host}


def test_options_of_the_whole_server_keeps_the_connection(connect):
    """The asterisk is a path that the application does not know."""
    wire = connect()
    assert wire.ask(request("OPTIONS", "*")).status == 404
    assert wire.ask(get("/echo")).status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_method_reaches_the_application(connect, method):
    """Any method of HTTP is the application's to judge."""
    sent = request(method, "/show", "Content-Length: 0")
    assert connect().ask(sent).json()["method"] == method


def test_connect_does_not_open_a_tunnel(connect):
    """CONNECT is refused, and what follows it is not taken for a request."""
    wire = connect(request("CONNECT", "example.org:443") + get("/echo", CLOSE))
    (response,) = wire.all_responses()
    assert 400 <= response.status <= 505


def test_header_names_with_underscores_are_dropped(connect):
    """A client can't pass SCRIPT_NAME or a header that looks like another one."""
    wire = connect()
    sent = ["SCRIPT_NAME: /x", "X_Client_Id: you", "Content_Length: 9", "X-Ok: yes"]
    call = wire.ask(get("/show", *sent)).json()
    assert call["headers"] == {"host": "front", "x-ok": "yes"}
    assert call["path"] == "/show"


def test_header_values_are_stripped_and_keep_latin_1(connect):
    """White space around a value is no part of it, other bytes are."""
    call = show(connect, "/show", "A:\t b\tc \t", "B: \xe9", "C:")
    assert call["headers"] == {"host": "front", "a": "b\tc", "b": "\xe9", "c": ""}


def test_host_is_optional_in_http_1_0(connect):
    """Health checks of old load balancers have no Host header."""
    assert connect().ask(b"GET /echo HTTP/1.0\r\n\r\n").status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("", "a", "A.example-1.org.", "under_score", "a:", "a:8000", "127.0.0.1:80"),
        *("[::1]", "[fe80::1%25eth0]:80", "%2Ftmp%2Fsocket", "xn--bcher-kva.example"),
    ],
)
def test_host_may_be_empty_a_name_or_an_address(connect, host):
    """Host reaches the application as the client sent it."""
    sent = f"GET /show HTTP/1.1\r\nHost: {host}\r\n\r\n"
    assert connect().ask(sent.encode()).json()["headers"] == {"host": host}


def test_request_in_small_pieces_is_answered(connect):
    """Each byte of head and body may come alone."""
    wire = connect()
    for byte in post("/echo", b"body"):
        wire.send(bytes([byte]))
    assert wire.response().body == b"body"
    for byte in chunked("/echo", b"bo", b"dy"):
        wire.send(bytes([byte]))
    assert wire.response().body == b"body"


def test_requests_in_two_packets_are_answered(connect):
    """Pipelined requests are separated at any boundary of packets."""
    wire = connect()
    sent = post("/echo", b"\r\n\r\n") + chunked("/echo", b"\r\n\r\n0\r\n", b"\r\n")
    for cut in range(len(sent) + 1):
        wire.send(sent[:cut])
        wire.send(sent[cut:])
        bodies = [each.body for each in wire.responses(2)]
        assert bodies == [b"\r\n\r\n", b"\r\n\r\n0\r\n\r\n"]


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, 5_000_000])
def test_body_of_known_length_is_whole(connect, size):
    """A body of any size arrives byte for byte."""
    body = bytes(range(256)) * (size // 256 + 1)
    wire = connect()
    for _ in range(2):
        assert wire.ask(post("/echo", body[:size])).body == body[:size]


def test_chunked_body_is_whole_and_trailers_are_no_headers(connect):
    """Chunk extensions and trailers are read and dropped."""
    wire = connect()
    head = request("POST", "/echo", "Transfer-Encoding: chunked")
    wire.send(head, b'5;a=b;c="d"\r\n01234\r\n2\r\n56\r\n0\r\nDigest: x\r\n\r\n')
    assert wire.response().body == b"0123456"
    parts = [bytes([place]) * (place * 97) for place in range(1, 200)]
    assert wire.ask(chunked("/echo", *parts)).body == b"".join(parts)
    head = request("POST", "/show", "Transfer-Encoding: Chunked")
    wire.send(head, b"0\r\nX-Late: x\r\n\r\n", get("/show", CLOSE))
    first, second = wire.all_responses()
    for response in (first, second):
        assert "x-late" not in response.json()["headers"]


@pytest.mark.parametrize("space", ["", " ", "\t", " \t "])
def test_chunked_is_understood_with_optional_white_space(connect, space):
    """White space before the value is allowed by HTTP, and changes no meaning."""
    head = request("POST", "/echo", f"Transfer-Encoding:{space}chunked", CLOSE)
    wire = connect(head + b"4\r\nbody\r\n0\r\n\r\n")
    assert wire.response().body == b"body"


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_body_that_is_not_read_is_no_request(connect, method):
    """The body of a GET is passed over, and the next request is answered."""
    body = get("/calls")
    sent = request(method, "/show", f"Content-Length: {len(body)}") + body
    wire = connect(sent + get("/echo", CLOSE))
    first, second = wire.all_responses()
    assert first.json()["method"] == method
    assert second.body == b""


def test_empty_lines_before_a_request_are_passed_over(connect):
    """A line end behind a body, as some clients send it, spoils no request."""
    wire = connect(b"\r\n" + post("/echo", b"1") + b"\r\n" + post("/echo", b"2"))
    assert [each.body for each in wire.responses(2)] == [b"1", b"2"]


def test_pipelined_requests_are_answered_in_order(connect):
    """A slow request is answered before quick ones that were sent behind it."""
    wire = connect()
    wire.send(
        get("/sleep?s=0.2"),
        post("/echo", b"second"),
        chunked("/echo", b"thi", b"rd"),
        get("/nothing"),
        get("/echo", CLOSE),
        get("/echo"),
    )
    found = [(each.status, each.body) for each in wire.all_responses()]
    assert found[:3] == [(200, b"slept"), (200, b"second"), (200, b"third")]
    assert [status for status, _ in found] == [200, 200, 200, 404, 200]


def test_pipelined_request_behind_a_large_response_is_answered_after_the_end(
    server, connect
):
    """A client may end its side while the response before is on its way."""
    wire = connect(receive_buffer=4096)
    wire.send(get("/bytes?bytes=20000000"), post("/echo", b"second"))
    assert wire.begins() == b"HTTP/1.1 200"
    wire.end_sending()
    # It has seen the end by then.
    assert server.ask(get("/sleep?s=0.2")).status == 200
    found = [each.body for each in wire.all_responses()]
    assert [len(each) for each in found] == [20_000_000, 6]


def test_request_sent_behind_a_waiting_one_is_answered_after_it(server, connect):
    """Requests that arrive meanwhile wait, in pieces of any size."""
    (wire,) = server.hold("pipelined")
    second = post("/echo", b"second")
    wire.send(second[:9])
    assert server.found("/waits?name=pipelined") == 1
    wire.send(second[9:], post("/echo", b"third"))
    server.release("pipelined")
    bodies = [each.body for each in wire.responses(3)]
    assert bodies == [b"pipelined", b"second", b"third"]
    assert wire.ask(post("/echo", b"fourth")).body == b"fourth"


def test_many_pipelined_requests_are_answered_in_order(connect):
    """A thousand requests in one packet nest no calls, and lose no order."""
    wire = connect()
    wire.send(*(post("/echo", b"%d" % place) for place in range(1000)))
    bodies = [each.body for each in wire.responses(1000)]
    assert bodies == [b"%d" % place for place in range(1000)]


def test_pipelined_requests_let_other_connections_go_first(server, connect):
    """Another client is answered before a long row of pipelined requests ends."""
    begin = server.found("/next")
    wire, other = connect(), connect()
    assert other.ask(get("/echo")).status == 200
    wire.send(get("/next") * 3000)
    place = other.ask(get("/next")).json() - begin
    assert place < 3000
    assert len(wire.responses(3000)) == 3000


def test_pipelined_requests_without_end_are_not_buffered(server, connect):
    """The server stops to read a client that sends on and on behind one request."""
    (wire,) = server.hold("flood")
    limit = 128 << 20
    assert wire.send_what_fits(get("/echo") * 4096, limit) < limit
    assert connect().ask(get("/echo")).status == 200
    server.release("flood")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_beyond_its_limit_is_not_buffered(connect, is_chunked):
    """A body is refused by its length, or once more than its limit has arrived."""
    target, part = "/read?limit=100000", bytes(60_000)
    wire = connect()
    for _ in range(2):
        if is_chunked:
            wire.send(request("POST", target, "Transfer-Encoding: chunked"))
            wire.send(chunk(part), chunk(b""))
        else:
            wire.send(post(target, part))
        assert wire.response().json() == len(part)
    if is_chunked:
        wire.send(request("POST", target, "Transfer-Encoding: chunked"))
        wire.send(chunk(part), chunk(part))
    else:
        wire.send(request("POST", target, "Content-Length: 120000"))
    response = wire.response()
    assert (response.status, response.closes()) == (413, True)
    assert wire.has_ended()


def test_body_that_is_refused_half_way_is_no_part_of_the_next(connect):
    """The rest of it is dropped, and what came before the refusal."""
    wire = connect()
    for _ in range(2):
        target = "/read?read_limit=10"
        wire.send(request("POST", target, "Content-Length: 30"), b"a" * 5)
        wire.send(b"a" * 15)
        response = wire.response()
        assert (response.status, response.closes()) == (413, False)
        wire.send(b"a" * 10, request("POST", "/echo", "Content-Length: 4"), b"bo")
        wire.send(b"dy")
        assert wire.response().body == b"body"


def test_large_bodies_at_the_same_time_are_whole(connect):
    """Reading pauses for a round of the event loop, and goes on."""
    wires = [connect() for _ in range(4)]
    body = bytes(8 << 20)
    for wire in wires:
        wire.send(post("/read", body))
    assert [wire.response().json() for wire in wires] == [len(body)] * 4


def test_unread_body_of_up_to_64_kib_keeps_the_connection(connect):
    """A small unread body is dropped, a large one ends the connection."""
    wire = connect()
    response = wire.ask(post("/refuse", bytes(60_000)))
    assert (response.status, response.closes()) == (401, False)
    wire.send(request("POST", "/refuse", "Content-Length: 1000000"))
    response = wire.response()
    assert (response.status, response.closes()) == (401, True)
    assert wire.has_ended()


def test_unread_chunked_body_closes_the_connection_and_the_response_says_so(connect):
    """With keep-alive the client would lose its next request."""
    wire = connect(request("POST", "/refuse", "Transfer-Encoding: chunked"))
    wire.send(b"3\r\nxyz\r\n")
    response = wire.response()
    assert (response.status, response.closes()) == (401, True)
    assert wire.has_ended()


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
@pytest.mark.parametrize("connection", ["Connection: Upgrade", "X: y"])
def test_upgrade_is_ignored(connect, upgrade, connection):
    """An offer of another protocol, as Java's client sends it, changes nothing."""
    headers = [connection, f"Upgrade: {upgrade}"]
    wire = connect()
    wire.send(post("/echo", b"body", *headers), get("/show", *headers))
    first, second = wire.responses(2)
    assert (first.status, first.body) == (200, b"body")
    assert second.status == 200
    assert wire.ask(chunked("/echo", b"body", headers=headers)).body == b"body"
    assert wire.ask(post("/echo", b"next")).body == b"next"


def test_http_1_0_closes_after_the_response(connect):
    """Without a word of keep-alive the connection ends."""
    wire = connect(get("/show", version="1.0"))
    response = wire.response()
    assert response.json()["version"] == "1.0"
    assert response.closes()
    assert wire.has_ended()


def test_http_1_0_keeps_the_connection_when_asked_to(connect):
    """The response says so, as an HTTP/1.0 client needs it."""
    wire = connect()
    for _ in range(2):
        response = wire.ask(get("/echo", "Connection: keep-alive", version="1.0"))
        assert response.header("connection").lower() == "keep-alive"
    assert wire.ask(post("/echo", b"1.1")).body == b"1.1"


@pytest.mark.parametrize("value", ["close", "Close", "x, close"])
def test_connection_close_is_obeyed(connect, value):
    """The response repeats it, and bytes behind the request are not answered."""
    wire = connect(get("/echo", f"Connection: {value}") + b"garbage" + get("/echo"))
    (response,) = wire.all_responses()
    assert (response.status, response.closes()) == (200, True)


def test_head_has_headers_and_no_body(connect):
    """The next response follows at once."""
    wire = connect()
    wire.send(
        request("HEAD", "/bytes?bytes=1000"),
        request("HEAD", "/nothing"),
        get("/echo", CLOSE),
    )
    first = wire.response(is_head=True)
    assert (first.status, first.header("content-length")) == (200, "1000")
    assert wire.response(is_head=True).status == 404
    assert wire.response().status == 200
    assert wire.has_ended()


@pytest.mark.parametrize("code", [204, 304])
def test_status_without_a_body_has_none(connect, code):
    """Neither a length nor a chunk follows 204 and 304."""
    wire = connect()
    wire.send(get(f"/status?code={code}"), post("/echo", b"next"))
    response = wire.response()
    assert response.status == code
    assert not response.header("content-length")
    assert wire.response().body == b"next"


def test_expect_100_continue_is_answered_when_the_body_is_read(connect):
    """A client that waits for 100 has it before the application's response."""
    wire = connect(
        request("POST", "/echo", "Expect: 100-Continue", "Content-Length: 4")
    )
    assert wire.response().status == 100
    wire.send(b"body")
    assert wire.response().body == b"body"
    assert wire.ask(post("/echo", b"next")).body == b"next"


def test_expect_100_continue_of_a_refused_request_is_not_answered(connect):
    """An application that does not read the body says so before it is sent."""
    head = request(
        "POST", "/refuse", "Expect: 100-continue", "Content-Length: 9", CLOSE
    )
    (response,) = connect(head).all_responses()
    assert response.status == 401


def test_expect_100_continue_with_the_body_at_hand_is_answered(connect):
    """A client that does not wait for 100 has its response all the same."""
    wire = connect(post("/echo", b"body", "Expect: 100-continue", CLOSE))
    *before, last = wire.all_responses()
    assert [each.status for each in before] in ([], [100])
    assert last.body == b"body"


def test_expect_100_continue_is_ignored_from_http_1_0(connect):
    """A client of HTTP/1.0 knows no interim responses."""
    wire = connect(
        b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody"
    )
    (response,) = wire.all_responses()
    assert (response.status, response.body) == (200, b"body")


def test_response_has_one_date(connect):
    """Each response has a Date header that is right."""
    date = parsedate_to_datetime(connect().ask(get("/echo")).header("date"))
    assert abs(datetime.now(UTC) - date) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ([], "http"),
        (["X-Forwarded-Proto: https"], "https"),
        (["X-Forwarded-Ssl: on"], "https"),
        (["X-Forwarded-Proto: http"], "http"),
        (["X-Forwarded-Proto: ftp"], "http"),
    ],
)
def test_forwarded_proto_of_a_local_proxy_is_believed(connect, headers, scheme):
    """By default a proxy at 127.0.0.1 may say that its client speaks HTTPS."""
    assert show(connect, "/show", *headers)["scheme"] == scheme


def test_forwarded_for_does_not_change_the_client(connect):
    """The client is the peer of the connection."""
    call = show(connect, "/show", "X-Forwarded-For: 9.9.9.9")
    assert call["client"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("allowed", "scheme"),
    [("10.1.2.3", "http"), ("10.1.2.3,127.0.0.0/8", "https"), ("*", "https")],
)
def test_forwarded_proto_is_believed_from_forwarded_allow_ips_only(allowed, scheme):
    """Any other peer's word for its client's scheme does not count."""
    with front(f"--forwarded-allow-ips={allowed}") as server:
        for _ in range(2):
            response = server.ask(get("/show", "X-Forwarded-Proto: https"))
            assert response.json()["scheme"] == scheme
