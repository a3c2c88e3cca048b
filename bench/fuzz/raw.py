"""Raw bytes on the socket: malformed HTTP, pipelines, wrong lengths."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.fuzz import models
from bench.fuzz.edits import damaged_bytes
from testing.exchange import Request

_BODY = b'{"instances": [[[1, 2], [3, 4]]]}'
_KEY = ": ".join(models.AUTHORIZATION).encode()
_HEAD = b"POST /predict HTTP/1.1\r\nHost: fuzz\r\n" + _KEY + b"\r\n"
_GOOD = Request("GET", "/healthz").wire()
_LINES = (
    *(b"GET /healthz HTTP/1.1", b"GET / HTTP/9.9", b"GET /healthz", b"PRI * HTTP/2.0"),
    *(b"get / HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"{}"),
    *(b"GET http://[ HTTP/1.1", b"GET //[x HTTP/1.1", b"GET ?" + b"a" * 9000),
    *(b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 50),
)
_NAMES = (b"A", b"A_B", b"", b"Content-Length", b"Host", b"\xff", b"A b")
_VALUES = (b"b", b"", b"-1", b"\x00", b"x" * 9000, b"\xff" * 50)


@dataclass(frozen=True)
class Talk:
    """Parts to send in order; they hold `requests` malformed requests."""

    parts: tuple[bytes, ...]
    half_close: bool = True
    pause_s: float = 0.0
    requests: int = 1


def talks(number: int, count: int) -> Iterator[Talk]:
    """Yield `count` talks from the seed `number`."""
    rng = random.Random(number)
    for _ in range(count):
        yield rng.choice(_KINDS)(rng)


def _request_line(rng: random.Random) -> Talk:
    line = rng.choice((*_LINES, rng.randbytes(rng.randint(1, 400))))
    return Talk((damaged_bytes(line, rng) + b"\r\nHost: fuzz\r\n\r\n",))


def _headers(rng: random.Random) -> Talk:
    lines = [b"GET /healthz HTTP/1.1", b"Host: fuzz"]
    for _ in range(rng.choice((1, 3, 90, 300))):
        colon = rng.choice((b": ", b":", b" : ", b""))
        lines.append(rng.choice(_NAMES) + colon + rng.choice(_VALUES))
    return Talk((b"\r\n".join([*lines, b"", b""]),))


def _chunks(rng: random.Random) -> Talk:
    trailers = (b"", b"", b"Trailer: x\r\n", b"Host: x\r\n", b"x" * 9000, b":\r\n")
    extension = rng.choice((b"", b"", b";a=b", b";" + b"x" * 100_000, b"\r"))
    head = b"%x" % len(_BODY) + extension + b"\r\n"
    body = head + _BODY + b"\r\n0\r\n" + rng.choice(trailers) + b"\r\n"
    if rng.random() < 0.7:
        body = damaged_bytes(body, rng)
    others = (b"gzip, chunked", b"chunked, chunked", b"x")
    coding = rng.choice((*[b"chunked"] * 6, *others))
    head = _HEAD + b"Transfer-Encoding: " + coding + b"\r\n\r\n"
    # A request after malformed chunks must not be answered.
    return Talk((head + body, _GOOD))


def _lengths(rng: random.Random) -> Talk:
    true = len(_BODY)
    wrong = (true + 500, true - 5, 0, -1, 10**9, 10**30, "x", "\xb2", f"{true},1")
    head = _HEAD + f"Content-Length: {rng.choice(wrong)}\r\n".encode("latin-1")
    if rng.random() < 0.3:
        head += b"Content-Length: 3\r\n"
    if rng.random() < 0.2:
        head += b"Transfer-Encoding: chunked\r\n"
    return Talk((head + b"\r\n" + _BODY,), half_close=rng.random() < 0.8)


def _pipeline(rng: random.Random) -> Talk:
    """Return pipelined requests, some with a body that the server does not read."""
    bad = [
        Request("POST", "/predict", (), b"x" * rng.choice((10, 5000, 300_000))),
        Request("POST", "/nothing", (), b"GET /metrics HTTP/1.1\r\n\r\n" * 3),
        Request("DELETE", "/readyz", (), _BODY),
        Request("GET", "/v2/models/nobody"),
    ]
    chosen = rng.choices(bad, k=rng.randint(2, 6))
    wire = b"".join(request.wire() for request in chosen)
    return Talk((wire, _GOOD), requests=len(chosen))


def _disconnect(rng: random.Random) -> Talk:
    """Return a request whose client disconnects before it has read the answer."""
    wire = _HEAD + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
    return Talk((wire[: rng.randint(1, len(wire))],), half_close=False)


def _slow(rng: random.Random) -> Talk:
    """Return a request in small parts, complete or not."""
    wire = Request("GET", rng.choice(("/healthz", "/nothing", "/\xff"))).wire()
    cut = wire[: rng.randint(1, len(wire))]
    step = max(len(cut) // 5, 1)
    parts = tuple(cut[at : at + step] for at in range(0, len(cut), step))
    return Talk(parts, pause_s=0.002)


_KINDS = (
    *(_request_line, _request_line, _headers, _chunks, _chunks, _lengths),
    *(_pipeline, _disconnect, _slow),
)
