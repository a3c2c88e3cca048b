"""Valid requests for each route and format, and the same with random damage."""

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from app.codec import npy
from bench.fuzz import models
from bench.fuzz.edits import damaged, damaged_bytes, dumped, junk
from testing.exchange import Request
from testing.pictures import form, picture, saved

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]
_PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/v1/models", "/v2", "/v2/models"),
    *("/v2/models/stats", "/v2/health/live", "/v2/health/ready"),
)
_ENDS = ("", "/metadata", "/ready", "/config", "/stats", "/versions/1", "/labels/a")
_SEGMENTS = (
    *("nobody", "a%2Fb", "..", "%2e%2e", "%00", "%ff", "quick%20", "stats", ":", "a/b"),
    *("7", "-1", "9" * 40, "x" * 300, "labels", "quick:PREDICT", "quick:explain"),
)
_QUERIES = ("top=0", "top=x", "top=" + "9" * 30, "%ff", "\xb2=\xff")
_HEADERS = (
    ("X-Request-Timeout-Ms", ("500", "0", "-1", "1e3", "9" * 300, "\xb2", "")),
    ("X-Client-Id", ("me", "\xff", "x" * 2000, "")),
    ("Accept", ("application/x-npy", "*/*", "\xff", "")),
    ("Inference-Header-Content-Length", ("0", "1", "30", "9" * 18, "-1", "x", "\xb9")),
    ("Authorization", ("Bearer wrong", "Basic eA==", "Bearer \xff\xfe", "", "Bearer")),
    ("Content-Encoding", ("gzip", "deflate", "br", "gzip, gzip", "identity", "\xff")),
    ("Content-Type", ("application/json", "application/x-npy", "image/png", "\xff")),
    ("Content-Type", ("multipart/form-data", "application/cloudevents+json", "a/x;")),
    ("ce-id", ("1", "\xff")),
    ("Expect", ("100-continue",)),
    ("Origin", ("http://a", "null")),
    ("Accept-Encoding", ("gzip", "\xff")),
    ("X-Forwarded-For", ("::1", "\xff")),
)
_PACKERS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    # A bomb: 20 MB in 20 KB.
    ("gzip", lambda body: gzip.compress(body + b" " * 20_000_000, 1)),
)


def from_corpus(number: int, examples: int) -> Iterator[Request]:
    """Yield `examples` requests from the seed `number`, most of them damaged."""
    rng = random.Random(number)
    for _ in range(examples):
        # Many requests of the corpus have no body.
        request = rng.choice(rng.choice((_with_body(), _with_body(), _without_body())))
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
            request = rng.choice(_DAMAGE)(request, rng)
        yield request


@cache
def _with_body() -> list[Request]:
    """Return valid requests of each format."""
    quick = {"instances": [models.QUICK_ROW] * 2}
    columns = {"prices": [[1, 2, 3]], "customer": ["Ann"]}
    event = {"specversion": "1.0", "id": "1", "source": "x", "type": "y"}
    options = {"id": "1", "parameters": {"timeout": 10**6}}
    options["outputs"] = [{"name": "output"}]
    return [
        _post("/predict", quick),
        _post("/stream_predict", quick),
        _post("/predict", {"inputs": [models.QUICK_ROW], "signature_name": "pack"}),
        _post("/predict", event | {"data": quick}, "application/cloudevents+json"),
        _post(
            "/predict", npy.encode({"": np.array([models.QUICK_ROW])}), npy.CONTENT_TYPE
        ),
        _post("/v1/models/till/versions/1:predict", {"inputs": columns}),
        *(_post(f"/v1/models/quick:{verb}", quick) for verb in ("classify", "regress")),
        *(
            request
            for name in models.NAMES
            for rows, inputs in [
                ({"instances": [models.row(name)]}, {"inputs": models.v2_inputs(name)})
            ]
            for request in (
                _post(f"/v1/models/{name}:predict", rows),
                _post(f"/v2/models/{name}/infer", inputs),
                _post(f"/v2/models/{name}/versions/1/infer", inputs | options),
            )
        ),
        *(_binary(rest) for rest in ({}, {"binary_data_output": True})),
        *(
            _post("/predict", _picture(kind), f"image/{kind.lower()}")
            for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
        ),
        *map(_form, (1, 2, 70)),
    ]


@cache
def _without_body() -> list[Request]:
    """Return valid requests without a body."""
    versions = [f"/v{n}/models/quick{end}" for n in (1, 2) for end in _ENDS]
    changes = [f"models/{models.SPARE}/{verb}" for verb in ("load", "unload")]
    return [
        *(Request("GET", path) for path in (*_PATHS, *versions)),
        *(Request("POST", f"/v2/repository/{what}") for what in (*changes, "index")),
    ]


def _post(path: str, body: Any, content_type: str = "") -> Request:
    headers = (("Content-Type", content_type),) if content_type else ()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", path, headers, data)


def _picture(kind: str) -> bytes:
    return saved(picture("L", 12, 9), kind)


def _form(parts: int) -> Request:
    body, headers = form(*[_picture("PNG")] * parts)
    return _post("/predict?top=1", body, headers["Content-Type"])


def _binary(parameters: dict[str, Any]) -> Request:
    """Return a V2 request whose tensor is behind the JSON."""
    (tensor,) = models.v2_inputs("quick")
    del tensor["data"]
    tensor["parameters"] = {"binary_data_size": 16}
    head = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    headers = (("Inference-Header-Content-Length", str(len(head))),)
    return Request("POST", "/v2/models/quick/infer", headers, head + bytes(16))


def _damage_json(request: Request, rng: random.Random) -> Request:
    """Damage the JSON at the start of a body, and its length in the header."""
    try:
        value, end = json.JSONDecoder().raw_decode(request.body.decode("latin-1"))
        changed = damaged(value, rng) if rng.random() < 0.9 else junk(rng)
        head, rest = dumped(changed, rng), request.body[end:]
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return _damage_bytes(request, rng)
    headers = request.headers
    if rest:
        size = str(rng.choice((len(head), len(head), 0, len(head) + 1, 10**9)))
        headers = (("Inference-Header-Content-Length", size),)
    return replace(request, headers=headers, body=head + rest)


def _damage_bytes(request: Request, rng: random.Random) -> Request:
    return replace(request, body=damaged_bytes(request.body, rng))


def _add_headers(request: Request, rng: random.Random) -> Request:
    chosen = rng.sample(_HEADERS, rng.randint(1, 3))
    more = ((name, rng.choice(values)) for name, values in chosen)
    return replace(request, headers=(*request.headers, *more))


def _pack(request: Request, rng: random.Random) -> Request:
    encoding, pack = rng.choice(_PACKERS)
    packed = pack(request.body)
    body = packed if rng.random() < 0.5 else damaged_bytes(packed, rng)
    headers = (*request.headers, ("Content-Encoding", encoding))
    return replace(request, headers=headers, body=body)


def _change_method(request: Request, rng: random.Random) -> Request:
    return replace(request, method=rng.choice(_METHODS))


def _change_path(request: Request, rng: random.Random) -> Request:
    """Change a part of the path, or add a query."""
    latin = "".join(chr(rng.randint(0x21, 0xFF)) for _ in range(rng.randint(1, 30)))
    if rng.random() < 0.2:
        return replace(request, path=f"{request.path}?{rng.choice(_QUERIES)}")
    parts = request.path.split("/")
    segment = rng.choice((*_SEGMENTS, latin.replace("#", "")))
    parts[rng.randrange(1, len(parts))] = segment
    return replace(request, path="/".join(parts))


_DAMAGE = (
    *(_damage_json, _damage_json, _damage_json, _damage_bytes, _damage_bytes),
    *(_add_headers, _pack, _change_method, _change_path, _change_path),
)
