"""Parsing heads, compared with a second parser, h11."""

import random
from urllib.parse import urlsplit

import h11
import pytest

from app.server.head import Head, Limits, Malformed
from app.server.heads import Heads

BLOCKS = 6_000
SEED = 7
LIMITS = Limits(4094, 100, 8190)
END = b"\r\n\r\n"
SEEDS = (
    b"GET / HTTP/1.1\r\nHost: a" + END,
    b"POST /predict?x=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5" + END + b"hello",
    b"POST /v1/models/m:predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    b"Trailer: x" + END + b"0" + END,
    b"GET http://a.example:8000/readyz HTTP/1.1\r\nHost: a.example:8000\r\n"
    b"Authorization: Bearer key\r\nConnection: close" + END,
    b"PUT /a%20b HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 0" + END,
    b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nExpect: 100-continue\r\nAccept: */*\r\n"
    b"X-A: \t b \t\r\nX-A:" + END,
)
BITS = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\r\n ", b" ", b"\t", b"\0", b"\x0b"),
    *(b"\x7f", b"\xff", b":", b",", b";", b"_", b"#", b"@", b"/", b"//", b"?", b"("),
    *(b'"', b"%", b"\\", b"+", b"-1", b"0", b"chunked", b"identity", b"HTTP/1.0"),
    *(b"HTTP/1.1", b"Content-Length: 3\r\n", b"Content-Length: 5\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n"),
    *(b"Transfer_Encoding: chunked\r\n", b"Host: b\r\n", b"Upgrade: x\r\n"),
    *(b"Connection: close\r\n", b"Connection: upgrade\r\n"),
)


def mutated(rng: random.Random) -> bytes:
    """Return a head with some bytes inserted, removed, changed or repeated."""
    block = rng.choice(SEEDS)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        starts = [at + 2 for at in range(len(block)) if block.startswith(b"\r\n", at)]
        at = rng.choice((rng.randrange(len(block) + 1), rng.choice(starts or [0])))
        size = rng.choice((1, 1, 2, 4, 40))
        part = block[at : at + size]
        put = rng.choice((rng.choice(BITS), rng.randbytes(1), part.swapcase(), b""))
        keep = rng.random() < 0.5
        block = block[:at] + put + (part if keep else b"") + block[at + len(part) :]
        if rng.random() < 0.1:
            lines = block.split(b"\r\n")
            rng.shuffle(lines)
            block = b"\r\n".join(lines)
    return block


@pytest.fixture(name="blocks", scope="module")
def _blocks():
    rng = random.Random(SEED)
    return [mutated(rng) for _ in range(BLOCKS)]


def ours(heads, block):
    """Return the head and the bytes behind it, None for one that is not accepted."""
    try:
        head, rest = heads.begin(block)
    except Malformed:
        return None
    return (head, rest) if head.complete else None


def theirs(block):
    """Return h11's request and the bytes behind it, None if it accepts none."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(block)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    return event, connection.trailing_data[0]


def read_by_us(head):
    """Return method, target, version, framing and headers."""
    # h11 writes the coding in lower case.
    headers = [
        (name, value.lower() if name == b"transfer-encoding" else value)
        for name, value in head.headers
    ]
    line = (head.method.encode(), head.target, head.version.encode())
    return *line, head.content_length, headers


def read_by_h11(request):
    """Return the same, with the two changes that RFC 9112 and nginx make to headers.

    The authority of a target replaces Host; names with an underscore are dropped.
    """
    headers = [(name, value) for name, value in request.headers if b"_" not in name]
    if not request.target.startswith(b"/"):
        authority = urlsplit(request.target).netloc
        headers = [
            (name, authority if authority and name == b"host" else value)
            for name, value in headers
        ]
    framing = dict(headers)
    length = int(framing.get(b"content-length", 0))
    if b"transfer-encoding" in framing:
        length = None
    return request.method, request.target, request.http_version, length, headers


# What we accept and h11 refuses. RFC 9112, 2.2, wants empty lines to be skipped.
HARMLESS = {"empty lines before the request line": lambda block: block[:2] == b"\r\n"}


def test_heads_are_read_as_a_second_parser_reads_them(blocks):
    """What two parsers read otherwise, a proxy and a server may read otherwise."""
    heads, both = Heads(LIMITS), 0
    for block in blocks:
        if (found := ours(heads, block)) is None:
            continue
        if (other := theirs(block)) is None:
            assert any(applies(block) for applies in HARMLESS.values()), block
            continue
        assert read_by_us(found[0]) == read_by_h11(other[0]), block
        assert found[1] == other[1], block
        both += 1
    # Neither all nor none is what was meant.
    assert BLOCKS / 10 < both < BLOCKS / 2


def test_heads_in_pieces_are_read_as_those_in_one(blocks):
    """Where a packet ends changes nothing."""
    heads, rng = Heads(LIMITS), random.Random(SEED)
    for block in blocks[: BLOCKS // 4]:
        head, rest = Head(LIMITS), block
        try:
            while rest and not head.complete:
                size = rng.choice((1, 2, 3, 10, 100))
                rest = head.feed(rest[:size]) + rest[size:]
        except Malformed:
            head.complete = False
        found = ours(heads, block)
        assert head.complete is (found is not None), block
        if found:
            assert read_by_us(head) == read_by_us(found[0])
            assert rest == found[1]
