"""Almost valid requests for each route and format, with random damage."""

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bench.fuzz import models
from bench.fuzz.edits import any_json, damaged, damaged_bytes, dumped, junk
from testing.exchange import Request

# Each request is also sent so often with other damage.
_VARIANTS = 4
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"]
_ODD_NAMES = ("nobody a%2Fb .. %2e%2e %00 %ff quick%20 stats : " + "x" * 300).split()
_VERSIONS = (
    *("/versions/1", "/versions/7", f"/versions/{'9' * 40}", "/versions/-1"),
    *("/versions/x", "/labels/stable", "/labels/%00", "/labels/", "/labels/a/b"),
)
_ENDS = ("", "/metadata", "/ready", "/config", "/stats", "/infer", "/")
_PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/v1/models", "/v2", "/v2/models"),
    *("/v2/models/stats", "/v2/health/live", "/v2/health/ready"),
    *("/v2/repository/index", "/v2/repository/mine/models/spare/load"),
)
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


def shaped(number: int, examples: int) -> Iterator[Request]:
    """Yield `examples` requests from the seed `number`."""
    rng = random.Random(number)
    for _ in range(max(examples // (1 + _VARIANTS), 1)):
        request = rng.choice(_KINDS)(rng)
        yield request
        for _ in range(_VARIANTS):
            yield _variant(request, rng)


def _predict(rng: random.Random) -> Request:
    path = rng.choice(("/predict", "/predict", "/stream_predict", "/predict?top=1"))
    return Request("POST", path, _headers(rng), _rows(rng, "quick"))


def _npy(rng: random.Random) -> Request:
    array = models.QUICK_ROW if rng.random() < 0.5 else any_json(rng)
    try:
        body = models.npy([array])
    except (ValueError, OverflowError):
        body = models.npy([models.QUICK_ROW])
    return Request("POST", "/predict", (_type("application/x-npy"),), body)


def _picture(rng: random.Random) -> Request:
    kind = rng.choice(("PNG", "JPEG", "WEBP", "GIF", "BMP"))
    body = models.picture(kind, "L" if kind == "GIF" else rng.choice(("L", "RGB")))
    return Request("POST", "/predict", (_type(f"image/{kind.lower()}"),), body)


def _form(rng: random.Random) -> Request:
    head = b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    part = b"--edge\r\n" + head + models.picture("PNG", rng.choice(("L", "RGB")))
    body = (part + b"\r\n") * rng.choice((1, 1, 2, 70)) + b"--edge--\r\n"
    path = f"/predict?top={rng.choice(('1', '0', '3', 'x', '9' * 30))}"
    headers = (_type("multipart/form-data; boundary=edge"),)
    return Request("POST", path, headers, body)


def _v1(rng: random.Random) -> Request:
    name, model = _name(rng)
    which = rng.choice(("", "", "/versions/1", rng.choice(_VERSIONS)))
    verb = rng.choice(("predict",) * 5 + ("classify", "regress", "explain", "PREDICT"))
    body, headers = _rows(rng, model), _headers(rng)
    if rng.random() < 0.1:
        event = {"specversion": "1.0", "id": "1", "source": "x", "type": "y"}
        right = {"instances": [models.QUICK_ROW]}
        data = right if rng.random() < 0.5 else junk(rng)
        body = dumped(damaged(event | {"data": data}, rng), rng)
        headers = (*headers, _type("application/cloudevents+json"))
    return Request("POST", f"/v1/models/{name}{which}:{verb}", headers, body)


def _v2(rng: random.Random) -> Request:
    name, model = _name(rng)
    which = rng.choice(("", "", "/versions/1", rng.choice(_VERSIONS)))
    value: Any = {"inputs": models.v2_inputs(model)}
    value |= rng.choice(({}, {"id": "1"}, {"parameters": {"timeout": 10**6}}))
    outputs = rng.choice(([{"name": "output"}], any_json(rng)))
    value |= rng.choice(({}, {"outputs": outputs}))
    path = f"/v2/models/{name}{which}/infer"
    return Request("POST", path, _headers(rng), _mostly_damaged(value, rng))


def _v2_binary(rng: random.Random) -> Request:
    tensor = models.v2_inputs("quick")[0]
    del tensor["data"]
    data = rng.randbytes(rng.choice((0, 15, 16, 16, 16, 32)))
    size_said = rng.choice((16, 16, rng.randint(-1, 40)))
    tensor["parameters"] = {"binary_data_size": size_said}
    value: Any = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = dumped(damaged(value, rng) if rng.random() < 0.5 else value, rng)
    size = str(rng.choice((len(head), len(head), 0, len(head) + 1, 10**9)))
    headers = (("Inference-Header-Content-Length", size),)
    body = data if size == "0" else head + data
    return Request("POST", "/v2/models/quick/infer", headers, body)


def _other(rng: random.Random) -> Request:
    """Return a request to any path with any method."""
    latin = "".join(chr(rng.randint(0x21, 0xFF)) for _ in range(rng.randrange(30)))
    name = rng.choice((_name(rng)[0], latin))
    which, end = rng.choice(("", rng.choice(_VERSIONS))), rng.choice(_ENDS)
    spare, action = rng.choice((models.SPARE, "nobody", "%ff")), ("load", "unload")
    path = rng.choice(
        (
            *(f"/v1/models/{name}{which}{end}", f"/v2/models/{name}{which}{end}"),
            *(rng.choice(_PATHS), f"/v2/repository/{name}/index"),
            f"/v2/repository/models/{spare}/{rng.choice(action)}",
            "/" + latin.replace("#", ""),
            f"//{rng.choice(('v2', 'predict', 'v1/models'))}?{latin}",
        )
    )
    body = dumped(any_json(rng), rng) if rng.random() < 0.5 else b""
    return Request(rng.choice((*_METHODS, *("POST", "GET") * 4)), path, (), body)


_KINDS = (
    *(_predict, _predict, _npy, _picture, _form, _form),
    *(_v1, _v1, _v2, _v2, _v2_binary, _v2_binary, _other, _other),
)


def _name(rng: random.Random) -> tuple[str, str]:
    """Return a name for the path, and the model whose rows are sent."""
    model = rng.choice(models.NAMES)
    return (model, model) if rng.random() < 0.7 else (rng.choice(_ODD_NAMES), "quick")


def _rows(rng: random.Random, model: str) -> bytes:
    rows = [models.row(model)] * rng.choice((1, 1, 2, 5))
    value: Any = {"instances": rows}
    if rng.random() < 0.3:
        columns = {"prices": [[1, 2, 3]], "customer": ["Ann"]}
        value = {"inputs": columns if model == "till" else rows}
    if rng.random() < 0.1:
        value["signature_name"] = rng.choice(("pack", "", "serving_default", 7))
    return _mostly_damaged(value, rng)


def _mostly_damaged(value: Any, rng: random.Random) -> bytes:
    return dumped(damaged(value, rng) if rng.random() < 0.9 else any_json(rng), rng)


def _variant(request: Request, rng: random.Random) -> Request:
    """Return the same request with other damage."""
    edit = rng.randrange(8)
    if edit == 0:
        return replace(request, headers=(*request.headers, *_headers(rng, 3)))
    if edit == 1:
        encoding, pack = rng.choice(_PACKERS)
        packed = pack(request.body)
        body = packed if rng.random() < 0.5 else damaged_bytes(packed, rng)
        headers = (*request.headers, ("Content-Encoding", encoding))
        return replace(request, headers=headers, body=body)
    if edit == 2:
        return replace(request, method=rng.choice(_METHODS))
    return replace(request, body=damaged_bytes(request.body, rng))


def _headers(rng: random.Random, most: int = 1) -> tuple[tuple[str, str], ...]:
    chosen = rng.sample(_HEADERS, rng.randint(0, most))
    return tuple((name, rng.choice(values)) for name, values in chosen)


def _type(content_type: str) -> tuple[str, str]:
    return "Content-Type", content_type
