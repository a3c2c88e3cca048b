"""Parsing heads, compared with a second parser, h11; and heads that are found again."""

import random
import re
import time
from urllib.parse import urlsplit

import h11
import pytest
from gunicorn.config import Config

from app.rims.http_heads import HeadCache, Malformed

BLOCKS = 6_000
SEED = 7
# Its limits: 4094 bytes, 100 fields, 8190 bytes.
RULES = Config()
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
    b"POST / HTTP/1.1\r\nX-Request-Id: 7-f\r\nHost: a\r\nContent-Length: 5" + END,
)
BITS = (
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r\n ",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\xff",
    b":",
    b",",
    b";",
    b"_",
    b"#",
    b"@",
    b"/",
    b"//",
    b"?",
    b"(",
    b'"',
    b"%",
    b"\\",
    b"+",
    b"-1",
    b"0",
    b"chunked",
    b"identity",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"Content-Length: 3\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"Host: b\r\n",
    b"Upgrade: x\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\n",
    b"X-Request-Id: a\r\n",
)


def limited(field_bytes):
    """Return settings with a limit on the bytes of a field."""
    rules = Config()
    rules.set("limit_request_field_size", field_bytes)
    return rules


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
        head, size = heads.read(block)
    except Malformed:
        return None
    return head and (head, block[size:])


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
    headers = dict(head.headers)
    if "transfer-encoding" in headers:
        # h11 writes the coding in lower case.
        headers["transfer-encoding"] = headers["transfer-encoding"].lower()
    return head.method, head.target, head.version, head.content_length, headers


def read_by_h11(request):
    """Return the same, with the changes that RFC 9112, nginx and WSGI make to headers.

    The authority of a target replaces Host, names with an underscore are dropped, and
    repeated values are joined.
    """
    headers = {}
    for name_bytes, value_bytes in request.headers:
        name, value = name_bytes.decode(), value_bytes.decode("latin-1")
        if "_" not in name:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    target = request.target.decode()
    if not target.startswith("/") and "host" in headers:
        headers["host"] = urlsplit(target).netloc or headers["host"]
    length = int(headers.get("content-length", 0))
    if "transfer-encoding" in headers:
        length = None
    version = request.http_version.decode()
    return request.method.decode(), target, version, length, headers


# What we accept and h11 refuses. RFC 9112, 2.2, wants empty lines to be skipped.
HARMLESS = {"empty lines before the request line": lambda block: block[:2] == b"\r\n"}


def test_heads_are_read_as_a_second_parser_reads_them(blocks):
    """What two parsers read otherwise, a proxy and a server may read otherwise."""
    heads, both = HeadCache(RULES), 0
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


def test_part_of_a_head_is_refused_only_if_the_whole_is(blocks):
    """Where a packet ends changes nothing."""
    for block in blocks[: BLOCKS // 4]:
        heads = HeadCache(RULES)
        found = ours(heads, block)
        if found is None:
            continue
        size = len(block) - len(found[1])
        for stop in range(size):
            assert HeadCache(RULES).read(block[:stop]) == (None, 0)


def everything(head):
    """Return all that a head says."""
    return {
        "body": (head.content_length, head.expects_continue),
        "connection": (head.keep_alive, head.version, head.forwarded_scheme),
        "headers": dict(head.headers),
        "line": (head.method, head.path, head.query, head.raw_path, head.target),
        "request_id": head.request_id,
    }


def found_again(rules, first, second):
    """Return what the second head says when the first was read before it; or None."""
    heads = HeadCache(rules)
    ours(heads, first)
    found = ours(heads, second)
    return found and everything(found[0])


def parsed(rules, sent):
    found = ours(HeadCache(rules), sent)
    return found and everything(found[0])


def with_other_values(rng, block):
    """Return a head with another length and another id, if it has these."""

    def other(match):
        number = b"%d" % rng.randrange(99)
        return match[1] + rng.choice((number, number, rng.choice(BITS)))

    return re.sub(b"((?:Content-Length|X-Request-Id): )[!-~]+", other, block)


def test_heads_that_are_found_again_are_read_as_new_ones(blocks):
    """A cache that has seen many heads reads none otherwise than an empty one."""
    heads, rng, accepted = HeadCache(RULES), random.Random(SEED), 0
    for block in blocks:
        for _ in range(4):
            sent = with_other_values(rng, block)
            found = ours(heads, sent)
            assert (found and everything(found[0])) == parsed(RULES, sent), sent
            accepted += found is not None
    assert accepted > BLOCKS


LINE = b"POST / HTTP/1.1\r\nHost: a\r\n"
ID = b"X-Request-Id: a\r\n"
LENGTH = b"Content-Length: 5\r\n"
# A head that is read first, and what would be wrong to read like it.
FOOLING = {
    "another length": (LENGTH, b"Content-Length: 6\r\n"),
    "no length": (LENGTH, b""),
    "a length more": (ID, ID + LENGTH),
    "an id more": (LENGTH, LENGTH + ID),
    "a second length": (LENGTH, LENGTH + LENGTH),
    "a second length, in another spelling": (LENGTH, LENGTH + b"Content-Length:6\r\n"),
    "a second length, spelled so before": (
        LENGTH + b"Content-Length:5\r\n",
        b"Content-Length: 6\r\nContent-Length:5\r\n",
    ),
    "a second length, with white space": (
        LENGTH,
        LENGTH + b"Content-Length: 6 \r\n",
    ),
    "a length with an underscore": (LENGTH, b"Content_Length: 5\r\n"),
    "a second id": (ID + LENGTH, ID + ID + LENGTH),
    "a second id, in another spelling": (
        b"X-Request-Id:b\r\n" + ID,
        b"X-Request-Id:b\r\nX-Request-Id: c\r\n",
    ),
    "a second id, spelled so before": (
        ID + b"X-Request-Id:b\r\n",
        b"X-Request-Id: c\r\nX-Request-Id:b\r\n",
    ),
    "an invalid id": (ID + LENGTH, b"X-Request-Id: a b\r\n" + LENGTH),
    "an invalid id before": (b"X-Request-Id: a b\r\n" + LENGTH, ID + LENGTH),
    "an id that is too long": (ID, b"X-Request-Id: " + b"a" * 129 + b"\r\n"),
    "an empty id": (ID, b"X-Request-Id: \r\n"),
    "an id of Latin-1": (ID, b"X-Request-Id: \xe4\r\n"),
    "an id with NUL": (ID, b"X-Request-Id: \0\r\n"),
    "chunks beside": (LENGTH, LENGTH + b"Transfer-Encoding: chunked\r\n"),
    "chunks instead": (LENGTH, b"Transfer-Encoding: chunked\r\n"),
    "chunks with an id": (
        b"Transfer-Encoding: chunked\r\n" + ID,
        b"Transfer-Encoding: chunked\r\nX-Request-Id: b\r\n",
    ),
    "chunks with an id, and a length": (
        b"Transfer-Encoding: chunked\r\n" + ID,
        b"Transfer-Encoding: chunked\r\n" + ID + LENGTH,
    ),
    "expectation": (LENGTH, LENGTH + b"Expect: 100-continue\r\n"),
    "expectation with another length": (
        LENGTH + b"Expect: 100-continue\r\n",
        b"Content-Length: 0\r\nExpect: 100-continue\r\n",
    ),
    "plus": (LENGTH, b"Content-Length: +5\r\n"),
    "minus": (LENGTH, b"Content-Length: -5\r\n"),
    "hex": (LENGTH, b"Content-Length: 0x5\r\n"),
    "point": (LENGTH, b"Content-Length: 5.0\r\n"),
    "underscore": (LENGTH, b"Content-Length: 5_0\r\n"),
    "list": (LENGTH, b"Content-Length: 5,5\r\n"),
    "zeros": (LENGTH, b"Content-Length: 005\r\n"),
    "many zeros": (LENGTH, b"Content-Length: " + b"0" * 101 + b"5\r\n"),
    "beyond 64 bits": (LENGTH, b"Content-Length: 18446744073709551616\r\n"),
    "within 64 bits": (LENGTH, b"Content-Length: 18446744073709551615\r\n"),
    "empty length": (LENGTH, b"Content-Length: \r\n"),
    "folded length": (LENGTH, b"Content-Length: 5\r\n 6\r\n"),
    "folded id": (ID, b"X-Request-Id: a\r\n\tb\r\n"),
    "space before the colon": (LENGTH, b"Content-Length : 5\r\n"),
    "other letters": (LENGTH + ID, b"content-length: 6\r\nX-REQUEST-ID: b\r\n"),
    "another order": (LENGTH + ID, ID + LENGTH),
    "a length in an id": (ID, b"X-Request-Id: Content-Length:5\r\n"),
    "a field between": (ID + LENGTH, ID + b"A: b\r\n" + LENGTH),
    "a bare LF": (LENGTH, b"Content-Length: 5\nContent-Length: 6\r\n"),
    "a bare CR": (LENGTH, b"Content-Length: 5\rContent-Length: 6\r\n"),
}


@pytest.mark.parametrize(("first", "second"), FOOLING.values(), ids=FOOLING.keys())
def test_head_is_read_as_if_none_had_been_before(first, second):
    """What the cache finds for a head is what its bytes say."""
    for rules in (RULES, limited(40)):
        sent = LINE + second + b"\r\n"
        expected = parsed(rules, sent)
        assert found_again(rules, LINE + first + b"\r\n", sent) == expected
        assert found_again(rules, sent, LINE + first + b"\r\n") == parsed(
            rules, LINE + first + b"\r\n"
        )


@pytest.mark.parametrize(
    "second",
    [
        b"\r\nContent-Length: 6\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"Content-Length: 6\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 6\r\nHost: a\r\n\r\n",
        b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n",
    ],
)
def test_field_in_another_place_is_another_head(second):
    """A field before the request line is refused, whatever stands around it."""
    first = LINE + LENGTH + b"\r\n"
    assert found_again(RULES, first, second) == parsed(RULES, second)


def test_limit_on_a_field_holds_for_heads_that_are_found_again():
    """A longer id than that of the head before may exceed the limit."""
    rules = limited(20)
    first = LINE + b"X-Request-Id: a\r\n\r\n"
    second = LINE + b"X-Request-Id: " + b"a" * 20 + b"\r\n\r\n"
    assert parsed(rules, first)
    assert parsed(rules, second) is found_again(rules, first, second) is None


def test_heads_share_what_the_predictor_has_found_but_no_headers():
    """A head with its own id and length knows what it asks for, as the first one."""
    heads = HeadCache(RULES)
    first, _ = heads.read(LINE + ID + LENGTH + b"\r\n")
    first.asks = object()
    second, _ = heads.read(LINE + b"X-Request-Id: b\r\nContent-Length: 77\r\n\r\n")
    assert second.asks is first.asks
    assert (second.request_id, second.content_length) == ("b", 77)
    assert second.headers == {"host": "a", "x-request-id": "b", "content-length": "77"}
    assert (first.request_id, first.content_length) == ("a", 5)
    assert first.headers == {"host": "a", "x-request-id": "a", "content-length": "5"}
    # With an own id it is not kept, as the next id is another one.
    assert len(heads.by_bytes) == 1


def test_number_of_kept_heads_has_a_limit():
    """A client that sends ever new heads does not fill the memory."""
    heads = HeadCache(RULES)
    for number in range(3000):
        sent = LINE + b"A: %d\r\n" % number + LENGTH + b"\r\n"
        head, _ = heads.read(sent)
        assert heads.by_bytes[sent] is head
    assert len(heads.by_bytes) == 1024


def test_length_that_is_no_number_is_refused():
    """Only digits, and white space around them, are a Content-Length."""
    rng, accepted = random.Random(SEED), 0
    for _ in range(20_000):
        value = bytes(rng.choices(b"0123456789 +-_.,xe\t\xb2", k=rng.randrange(5)))
        found = ours(HeadCache(RULES), LINE + b"Content-Length:" + value + END)
        digits = value.strip(b" \t")
        assert (found is not None) == digits.isdigit(), value
        if found is not None:
            assert found[0].content_length == int(digits)
            accepted += 1
    assert accepted > 1000


@pytest.mark.parametrize("fields", [b"a:\r\n", b"a: b\r\nc:\r\n"])
def test_many_fields_take_linear_time(fields):
    """Repeated fields, whose values are joined, do not stop the event loop."""
    sent = LINE + fields * ((256 << 10) // len(fields)) + b"\r\n"
    began_s = time.process_time()
    assert ours(HeadCache(RULES), sent) is None
    assert time.process_time() - began_s < 0.1


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\n\n", b"\nGET", b"GET \xff"],
)
def test_what_can_become_no_head_is_refused_before_its_end(sent):
    """A client that speaks TLS on a plain port does not wait for the header timeout."""
    with pytest.raises(Malformed):
        HeadCache(RULES).read(sent)
