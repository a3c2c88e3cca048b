"""Malformed requests and request smuggling: refused with JSON, and the end."""

import itertools

import pytest

from tests.support.front import chunk, front, get, post, request, until

SMUGGLED = get("/smuggled")
_numbers = itertools.count()
LINE = b"GET /echo HTTP/1.1\r\n"
HOST = b"Host: front\r\n"
GET = LINE + HOST
POST = b"POST /echo HTTP/1.1\r\n" + HOST
END = b"\r\n\r\n"
CHUNKED = request("POST", "/echo", "Transfer-Encoding: chunked")
LAST_CHUNK = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with front("--threads=2") as server:
        yield server


@pytest.fixture(name="refused")
def _refused(server, connect):
    """Send bytes with a request behind them; return the status of the only answer."""

    def refused(sent):
        path = f"/smuggled/{next(_numbers)}"
        (response,) = connect(sent + get(path)).all_responses()
        assert response.closes()
        assert response.error()
        assert path not in server.found("/calls")
        return response.status

    return refused


LENGTHS = {
    "both lengths": b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    "both lengths, the other first": (
        b"Transfer-Encoding: chunked\r\nContent-Length: 4"
    ),
    "twice, equal": b"Content-Length: 5\r\nContent-Length: 5",
    "twice, unequal": b"Content-Length: 5\r\nContent-Length: 0",
    "a list, equal": b"Content-Length: 5, 5",
    "a list, unequal": b"Content-Length: 5, 0",
    "space before the colon": b"Content-Length : 5",
    "tab before the colon": b"Content-Length\t: 5",
    "negative": b"Content-Length: -5",
    "plus": b"Content-Length: +5",
    "hex": b"Content-Length: 0x5",
    "decimal point": b"Content-Length: 5.0",
    "underscore": b"Content-Length: 5_0",
    "two numbers": b"Content-Length: 5 5",
    "empty": b"Content-Length: ",
    "no digits": b"Content-Length: five",
    "other digits": "Content-Length: \u0665".encode(),
    "NUL": b"Content-Length: 5\0",
    "vertical tab": b"Content-Length: \x0b5",
    "oversized": b"Content-Length: 99999999999999999999999",
    "oversized, of 5000 digits": b"Content-Length: " + b"9" * 5000,
    "zeros before the number": b"Content-Length: " + b"0" * 4999 + b"5",
}


@pytest.mark.parametrize("lines", LENGTHS.values(), ids=LENGTHS.keys())
def test_ambiguous_content_length_is_refused(refused, lines):
    """A body whose length could be read in two ways is not read at all."""
    assert refused(POST + lines + END + LAST_CHUNK) in (400, 413, 431, 501)


CODINGS = {
    "gzip": b"Transfer-Encoding: gzip",
    "gzip, chunked": b"Transfer-Encoding: gzip, chunked",
    "chunked, gzip": b"Transfer-Encoding: chunked, gzip",
    "chunked, chunked": b"Transfer-Encoding: chunked, chunked",
    "identity beside a length": b"Transfer-Encoding: identity\r\nContent-Length: 5",
    "length beside identity": b"Content-Length: 5\r\nTransfer-Encoding: identity",
    "gzip, then chunked": b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "chunked, then identity": (
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"
    ),
    "identity": b"Transfer-Encoding: identity",
    "identity, then chunked": (
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"
    ),
    "xchunked": b"Transfer-Encoding: xchunked",
    "chunkedx": b"Transfer-Encoding: chunkedx",
    "quoted": b'Transfer-Encoding: "chunked"',
    "with a parameter": b"Transfer-Encoding: chunked;q=1",
    "with a comma": b"Transfer-Encoding: ,chunked",
    "empty": b"Transfer-Encoding: ",
    "space before the colon": b"Transfer-Encoding : chunked",
    "tab before the colon": b"Transfer-Encoding\t: chunked",
    "vertical tab": b"Transfer-Encoding: \x0bchunked",
    "NUL": b"Transfer-Encoding: chunked\0",
    "folded": b"Transfer-Encoding:\r\n chunked",
    "folded, with a tab": b"Transfer-Encoding:\r\n\tchunked",
    "behind a bare LF": b"A: b\nTransfer-Encoding: chunked",
    "behind a bare CR": b"A: b\rTransfer-Encoding: chunked",
}


@pytest.mark.parametrize("lines", CODINGS.values(), ids=CODINGS.keys())
def test_odd_transfer_encoding_is_refused(refused, lines):
    """Only chunked is understood, and nothing similar to it."""
    assert refused(POST + lines + END + LAST_CHUNK) in (400, 501)


def test_transfer_encoding_with_trailing_tab_is_not_misread(server, connect):
    """White space behind the value is no part of it; else the request is refused."""
    sent = POST + b"Transfer-Encoding: chunked\t" + END + chunk(b"body") + LAST_CHUNK
    first, *others = connect(sent + get("/echo", "Connection: close")).all_responses()
    if first.status == 200:
        assert first.body == b"body"
        assert [each.status for each in others] == [200]
    else:
        assert first.status in (400, 501)
        assert others == []


def test_transfer_encoding_from_http_1_0_is_refused(refused):
    """HTTP/1.0 has no chunks, and a proxy that speaks it would not see them."""
    head = b"POST /echo HTTP/1.0\r\nHost: front\r\nTransfer-Encoding: chunked\r\n"
    for more in (b"", b"Connection: keep-alive\r\n"):
        assert refused(head + more + b"\r\n" + LAST_CHUNK) in (400, 501)


HEADERS = {
    "bare LF behind the request line": b"GET /echo HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF alone": b"GET /echo HTTP/1.1\nHost: x\n\n",
    "bare LF behind a header": GET + b"B: x\nA: b\r\n\r\n",
    "bare LF at the end": GET + b"B: x\r\n\n",
    "bare CR": GET + b"B: x\rA: b\r\n\r\n",
    "obs-fold": GET + b"A: b\r\n c\r\n\r\n",
    "obs-fold with a tab": GET + b"A: b\r\n\tc\r\n\r\n",
    "obs-fold of the first header": LINE + b" A: b\r\n\r\n",
    "space before the colon": GET + b"A : b\r\n\r\n",
    "no colon": GET + b"nonsense\r\n\r\n",
    "no name": GET + b": b\r\n\r\n",
    "NUL in a value": GET + b"A: b\0c\r\n\r\n",
    "control byte in a value": GET + b"A: b\x01c\r\n\r\n",
    "DEL in a value": GET + b"A: b\x7fc\r\n\r\n",
    "NUL in a name": GET + b"A\0: b\r\n\r\n",
    "parenthesis in a name": GET + b"A(: b\r\n\r\n",
    "Latin-1 in a name": GET + b"A\xff: b\r\n\r\n",
    "bare CR at the end": GET + b"\r\r\n\r\n",
    "bare CR in a value": GET + b"A: b\rc\r\n\r\n",
    "bare CR in a name": GET + b"A\rB: c\r\n\r\n",
    "NUL as a value": GET + b"A: \0\r\n\r\n",
    "UTF-8 in a name": GET + "\u00e4: b\r\n\r\n".encode(),
    "tab before the colon": GET + b"A\t: b\r\n\r\n",
    "two hosts": GET + b"Host: front\r\n\r\n",
    "no host": LINE + b"\r\n",
    "no host, but an absolute target": b"GET http://a/ HTTP/1.1\r\n\r\n",
    "host with an underscore in its name": LINE + b"Ho_st: a\r\n\r\n",
}


@pytest.mark.parametrize("sent", HEADERS.values(), ids=HEADERS.keys())
def test_malformed_header_is_refused(refused, sent):
    """Line ends, names and values that HTTP does not allow are 400."""
    assert refused(sent) == 400


HOSTS = [
    *(b"a b", b"a\tb", b"a/b", b"a,b", b"user@a", b"a#b", b"a?b", b"a\\b", b"<a>"),
    *(b"http://a", b"a:b", b"a:1:2", b":80", b"::1", b"[::1", b"[a/b]", b"[::1]x"),
    *(b"a\x01", b"a\0", b"a\x7f", b"\xe4", "\u00e4".encode(), b"a;b", b'"a"', b","),
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_host_that_is_no_host_is_refused(refused, host, version):
    """Host is a name or an address with an optional port."""
    line = b"GET /echo HTTP/" + version + b"\r\nConnection: keep-alive\r\n"
    assert refused(line + b"Host: " + host + END) == 400
    target = b"GET http://" + host + b"/echo HTTP/" + version + b"\r\n"
    if b"/" not in host and b"?" not in host:
        assert refused(target + HOST + b"\r\n") == 400


LINES = {
    "nonsense": b"NONSENSE\r\n\r\n",
    "JSON": b'{"instances": []}\r\n\r\n',
    "binary": b"\0\xff" * 100,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "PROXY protocol": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + get("/echo"),
    "PROXY protocol, version 2": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + b"\x09" * 12,
    "lower case": b"get /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "tabs": b"GET\t/echo\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "space in front": b" GET /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "space behind": b"GET /echo HTTP/1.1 \r\n" + HOST + b"\r\n",
    "tab behind": b"GET /echo HTTP/1.1\t\r\n" + HOST + b"\r\n",
    "two spaces behind the method": b"GET  /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces behind the target": b"GET /echo  HTTP/1.1\r\n" + HOST + b"\r\n",
    "two words behind the target": b"GET /echo x HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab behind the method": b"GET\t/echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab behind the target": b"GET /echo\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "vertical tab": b"GET /echo\x0bHTTP/1.1\r\n" + HOST + b"\r\n",
    "form feed": b"GET \x0c/echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare CR in front": b"\rGET /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare LF in front": b"\nGET /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare CR for a space": b"GET\r/echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare CR in the target": b"GET /ec\rho HTTP/1.1\r\n" + HOST + b"\r\n",
    "two CR behind": b"GET /echo HTTP/1.1\r\r\n" + HOST + b"\r\n",
    "NUL in the target": b"GET /ec\0ho HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the method": b"G\0ET /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "Latin-1 in the target": b"GET /\xe4 HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment": b"GET /echo#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment behind a query": b"GET /echo?x#x HTTP/1.1\r\n" + HOST + b"\r\n",
    "URL of another scheme": b"GET ftp://a/echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "URL without a host": b"GET http:///echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "RTSP": b"OPTIONS /echo RTSP/1.0\r\n" + HOST + b"\r\n",
    "ICE": b"SOURCE /echo ICE/1.0\r\n" + HOST + b"\r\n",
    "authority as a target": b"CONNECT front:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no path": b"GET HTTP/1.1\r\n" + HOST + b"\r\n",
    "relative path": b"GET echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "protocol in lower case": b"GET /echo http/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("sent", LINES.values(), ids=LINES.keys())
def test_malformed_request_line_is_refused(refused, sent):
    """Malformed HTTP is answered in JSON, as all errors are."""
    assert refused(sent) in (400, 501, 505)


@pytest.mark.parametrize(
    "version", ["0.9", "1.2", "1.9", "2.0", "3.0", "11.1", "1", "1.10", "x"]
)
def test_unknown_http_version_is_refused(refused, version):
    """Only HTTP/1.0 and HTTP/1.1 are spoken."""
    assert refused(get("/echo", version=version)) in (400, 505)


@pytest.mark.parametrize(
    "sent", [b"GET /echo\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_request_of_another_http_is_refused(refused, sent):
    """HTTP/0.9 has no version, and HTTP/2 begins with a preface."""
    assert refused(sent) in (400, 505)


def test_unknown_expectation_is_refused(refused):
    """An unknown expectation is a 417."""
    assert refused(get("/echo", "Expect: 200-ok")) == 417


BROKEN_CHUNKS = {
    "size": b"zz\r\n",
    "size with 0x": b"0x4\r\nbody\r\n0\r\n\r\n",
    "negative size": b"-4\r\nbody\r\n0\r\n\r\n",
    "size with a plus": b"+4\r\nbody\r\n0\r\n\r\n",
    "empty size": b"\r\nbody\r\n0\r\n\r\n",
    "huge size": b"fffffffffffffffff\r\nbody\r\n",
    "bare LF behind the size": b"4\nbody\r\n0\r\n\r\n",
    "no end": b"4\r\nbodyxx\r\n0\r\n\r\n",
    "bare LF as the end": b"4\r\nbody\n0\r\n\r\n",
    "bare CR in an extension": b"4;a\rb\r\nbody\r\n0\r\n\r\n",
    "bare LF in an extension": b"4;a\nb\r\nbody\r\n0\r\n\r\n",
    "bare LF behind an extension": b"4;a\nbody\r\n0\r\n\r\n",
    "bare LF in a quoted extension": b'4;a="\n"\r\nbody\r\n0\r\n\r\n',
    "escaped CR in a quoted extension": b'4;a="\\\r"\r\nbody\r\n0\r\n\r\n',
    "NUL in an extension": b"4;a=\0\r\nbody\r\n0\r\n\r\n",
    "bare LF in the last extension": b"4\r\nbody\r\n0;a\n\r\n",
    "bare CR behind the size": b"4\rbody\r\n0\r\n\r\n",
    "two CR behind the size": b"4\r\r\nbody\r\n0\r\n\r\n",
    "space behind the size": b"4 \r\nbody\r\n0\r\n\r\n",
    "tab behind the size": b"4\t\r\nbody\r\n0\r\n\r\n",
    "space before the size": b" 4\r\nbody\r\n0\r\n\r\n",
    "underscore in the size": b"0_4\r\nbody\r\n0\r\n\r\n",
    "NUL behind the size": b"4\0\r\nbody\r\n0\r\n\r\n",
    "two CR as the end": b"4\r\nbody\r\r\n0\r\n\r\n",
    "bare LF behind the last chunk": b"4\r\nbody\r\n0\r\n\n",
    "trailer without a colon": b"4\r\nbody\r\n0\r\nnonsense\r\n\r\n",
    "trailer Content-Length": b"4\r\nbody\r\n0\r\nContent-Length: 4\r\n\r\n",
    "trailer Transfer-Encoding": b"4\r\nbody\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
    "trailer Host": b"4\r\nbody\r\n0\r\nHost: a\r\n\r\n",
    "trailer with a bare LF": b"4\r\nbody\r\n0\r\nA: b\nC: d\r\n\r\n",
    "trailer with a bare CR": b"4\r\nbody\r\n0\r\nA: b\rC: d\r\n\r\n",
    "trailers that end in a bare LF": b"4\r\nbody\r\n0\r\nA: b\r\n\n",
    "trailer with a space before the colon": b"4\r\nbody\r\n0\r\nA : b\r\n\r\n",
    "trailer with NUL": b"4\r\nbody\r\n0\r\nA: b\0\r\n\r\n",
    "folded trailer": b"4\r\nbody\r\n0\r\nA: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("body", BROKEN_CHUNKS.values(), ids=BROKEN_CHUNKS.keys())
@pytest.mark.parametrize("before", [b"", chunk(b"first")], ids=["first", "second"])
def test_broken_chunk_or_trailer_is_400_and_closes(refused, before, body):
    """Nothing behind a broken chunk is a request, wherever in the body it stands."""
    assert refused(CHUNKED + before + body) == 400


ALL = {
    "lengths": [POST + lines + END for lines in LENGTHS.values()],
    "codings": [POST + lines + END + LAST_CHUNK for lines in CODINGS.values()],
    "headers": HEADERS.values(),
    "request lines": LINES.values(),
    "chunks": [CHUNKED + body for body in BROKEN_CHUNKS.values()],
}


@pytest.mark.parametrize("kind", ALL)
def test_malformed_request_in_small_pieces_is_refused(server, connect, kind):
    """What is refused in one packet is refused in packets of one byte."""
    for sent in ALL[kind]:
        if len(sent) > 1000:
            continue
        wire = connect()
        for byte in sent + get("/smuggled/in-pieces"):
            wire.send(bytes([byte]))
        (response,) = wire.all_responses()
        assert response.status in (400, 413, 431, 501, 505), sent
        assert response.error()
    assert "/smuggled/in-pieces" not in server.found("/calls")


LONG = {
    "extension": b"4;" + b"x" * 200_000,
    "size": b"0" * 200_000,
    "trailer": b"4\r\nbody\r\n0\r\nA: " + b"x" * 200_000,
    "trailers": b"4\r\nbody\r\n0\r\n" + b"a: b\r\n" * 40_000,
}


@pytest.mark.parametrize("body", LONG.values(), ids=LONG.keys())
def test_bytes_between_chunks_have_a_limit(refused, body):
    """More than 64 KiB of sizes, extensions or trailers are refused."""
    assert refused(CHUNKED + body) in (400, 413, 431)


@pytest.mark.parametrize("body", [b"", b"zz\r\n", b"4\r\nbodyxx\r\n"])
def test_request_whose_body_breaks_unread_has_one_response(connect, body):
    """The connection ends with it, and nothing behind is answered."""
    head = request("POST", "/refuse", "Transfer-Encoding: chunked")
    (response,) = connect(head + body + SMUGGLED).all_responses()
    assert response.status in (400, 401)
    assert response.closes()


@pytest.mark.parametrize(
    "sent",
    [
        post("/echo", b"cut")[:-1],
        CHUNKED + b"4\r\nbo",
        CHUNKED + b"4\r\nbody\r\n",
        CHUNKED + b"4\r\nbody\r\n0\r\n",
    ],
    ids=["length", "in a chunk", "between chunks", "no trailer end"],
)
def test_truncated_body_is_400_and_closes(connect, sent):
    """A body that ends too early is no body, though a part of it might be one."""
    wire = connect(sent)
    wire.end_sending()
    (response,) = wire.all_responses()
    assert response.status == 400
    assert response.error()


@pytest.mark.parametrize("sent", [b"", b"GET /ec", GET + b"Host", GET + b"A: b\r\n"])
def test_truncated_head_closes_the_connection(connect, sent):
    """A client that closes within a head gets nothing or 400, and its end."""
    wire = connect(sent)
    wire.end_sending()
    assert [each.status for each in wire.all_responses()] in ([], [400])


def test_request_line_has_a_limit(refused, connect):
    """Beyond --limit-request-line, 4094 by default, the answer is 414."""
    assert connect(get("/show?x=" + "a" * 4000)).response().status == 200
    assert refused(get("/show?x=" + "a" * 4100)) == 414
    assert refused(b"GET /" + b"a" * 200_000) == 414


def test_number_of_headers_has_a_limit(refused, connect):
    """Beyond --limit-request-fields, 100 by default, the answer is 431."""
    assert connect(get("/show", *["A: b"] * 98)).response().status == 200
    assert refused(get("/echo", *["A: b"] * 101)) == 431


def test_size_of_a_header_has_a_limit(refused, connect):
    """Beyond --limit-request-field_size, 8190 by default, the answer is 431."""
    assert connect(get("/show", "A: " + "b" * 8000)).response().status == 200
    assert refused(get("/echo", "A: " + "b" * 8300)) == 431
    assert refused(get("/echo", "A" * 8300 + ": b")) == 431
    assert refused(GET + b"A: " + b"b" * 200_000) == 431


def test_head_in_pieces_has_the_same_limits(server, connect):
    """A head without end is refused while it comes, and does not fill the memory."""
    for begin in (b"GET /", GET + b"A: "):
        wire = connect(begin)
        limit = 64 << 20
        # What comes behind the refusal is thrown away, or not taken.
        try:
            wire.send_what_fits(b"a" * 4096, 1 << 20)
        except ConnectionError:
            pytest.fail(f"reset after less than {limit} bytes")
        assert wire.response().status in (414, 431)
    assert connect().ask(get("/echo")).status == 200


def test_limits_of_the_head_are_settings():
    """Gunicorn's three settings are obeyed."""
    limits = ("--limit-request-line=100", "--limit-request-fields=5")
    with front(*limits, "--limit-request-field_size=200") as server:
        for sent, status in (
            (get("/show?" + "a" * 60), 200),
            (get("/show?" + "a" * 120), 414),
            (get("/show", *["A: b"] * 4), 200),
            (get("/show", *["A: b"] * 5), 431),
            (get("/show", "A: " + "b" * 180), 200),
            (get("/show", "A: " + "b" * 220), 431),
        ):
            assert server.ask(sent).status == status


def test_malformed_request_behind_a_good_one_is_refused_in_order(connect):
    """The response to the good request comes first, and whole."""
    wire = connect()
    wire.send(get("/sleep?s=0.1"), post("/echo", b"x"), b"NONSENSE\r\n\r\n", SMUGGLED)
    found = [(each.status, each.body) for each in wire.all_responses()]
    assert found[:2] == [(200, b"slept"), (200, b"x")]
    assert [status for status, _ in found[2:]] == [400]


def test_malformed_requests_leave_no_connection(server):
    """Their sockets are closed once the clients have disconnected."""
    for sent in (*LINES.values(), *HEADERS.values()):
        wire = server.connect(sent)
        if b"\r\n\r\n" in sent:
            assert wire.rest()
        wire.close()
    until(lambda: server.connections() == 0, server.connections)
