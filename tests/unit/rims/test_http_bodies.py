"""Chunked bodies, with any data in packets of any size."""

import random
import time

import pytest
from gunicorn.config import Config

from app.rims.http_bodies import ChunkedBody
from app.rims.http_heads import HeadCache, Malformed

SEED = 7
PACKET_BYTES = 256 << 10
# Seconds of CPU time for one packet. Linear time is a fifth of it on a busy machine,
# quadratic time twice it and more.
QUICK_S = 0.5
BEHIND = b"GET / HTTP/1.1\r\n\r\n"


def encoded(rng, parts):
    """Return chunks with these data, with extensions and trailers now and then."""
    chunks = []
    for part in parts:
        extension = rng.choice((b"", b"", b";a", b';a="b"'))
        chunks.append(b"%x%b\r\n%b\r\n" % (len(part), extension, part))
    trailers = rng.choice((b"", b"", b"A: b\r\n", b"A: b\r\nC: 0\r\n"))
    return b"".join(chunks) + rng.choice((b"0", b"00;a")) + b"\r\n" + trailers + b"\r\n"


def test_data_like_the_end_of_a_body_is_data():
    """Empty lines and zeros in the data end no body, wherever a packet ends."""
    rng = random.Random(SEED)
    for _ in range(3000):
        parts = [
            b"".join(rng.choices((b"\r\n", b"\r", b"\n", b"0", b":"), k=size))
            for size in rng.choices(range(1, 20), k=rng.randrange(4))
        ]
        rest = encoded(rng, parts) + BEHIND
        body, found = ChunkedBody(), []
        while not body.is_complete:
            size = rng.choice((1, 2, 3, 5, 8, 1000))
            packet, rest = rest[:size], rest[size:]
            part, behind = body.feed(packet)
            found.append(part)
            rest = behind + rest
        assert b"".join(found) == b"".join(parts)
        assert rest == BEHIND


@pytest.mark.parametrize("unit", [b"\r\n", b"0\r\n\r\n", b"\r\n\r\n0"])
def test_chunk_of_empty_lines_takes_linear_time(unit):
    """One packet of them does not stop the event loop for seconds."""
    body = ChunkedBody()
    body.feed(b"1000000\r\n")
    data = unit * (PACKET_BYTES // len(unit))
    began_s = time.process_time()
    assert body.feed(data) == (data, b"")
    assert time.process_time() - began_s < QUICK_S


def test_chunks_of_one_byte_take_linear_time():
    """The data of a packet comes at once."""
    chunks = PACKET_BYTES // 6
    began_s = time.process_time()
    assert ChunkedBody().feed(b"1\r\nx\r\n" * chunks) == (b"x" * chunks, b"")
    assert time.process_time() - began_s < QUICK_S


def test_empty_lines_before_a_request_take_linear_time_and_have_a_limit():
    """64 KiB of them are refused, as of any head."""
    heads = HeadCache(Config())
    began_s = time.process_time()
    with pytest.raises(Malformed, match="larger than 65536 bytes"):
        heads.read(b"\r\n" * (PACKET_BYTES // 2))
    assert time.process_time() - began_s < QUICK_S
    assert heads.read(b"\r\n" * (10 << 10)) == (None, 0)
