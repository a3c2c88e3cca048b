"""Requests that are almost right, by hypothesis, for each route and form."""

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bench.fuzz import models
from bench.fuzz.edits import damaged, damaged_bytes, dumped, junk
from bench.fuzz.exchange import Request

# A drawn request is sent as it is and so often with other damage.
_VARIANTS = 4
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
_LATIN = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=30)
_NAMES = st.sampled_from(models.NAMES)
_ODD_NAMES = st.sampled_from(
    (
        "nobody",
        "a%2Fb",
        "..",
        "%2e%2e",
        "%00",
        "%ff",
        "quick%20",
        "stats",
        "x" * 300,
        ":",
    )
)
_VERSIONS = st.sampled_from(
    (
        "/versions/1",
        "/versions/7",
        "/versions/" + "9" * 40,
        "/versions/-1",
        "/versions/x",
    )
)
_LABELS = st.sampled_from(("/labels/stable", "/labels/%00", "/labels/", "/labels/a/b"))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
_HEADERS = (
    ("X-Request-Timeout-Ms", ("500", "0", "-1", "1e3", "9" * 300, "\xb2", "")),
    ("X-Client-Id", ("me", "\xff", "x" * 2000, "")),
    ("Accept", ("application/x-npy", "*/*", "\xff", "")),
    ("Inference-Header-Content-Length", ("0", "1", "30", "9" * 18, "-1", "x", "\xb9")),
    ("Authorization", ("Bearer wrong", "Basic eA==", "Bearer \xff\xfe", "", "Bearer")),
    ("Content-Encoding", ("gzip", "deflate", "br", "gzip, gzip", "identity", "\xff")),
    (
        "Content-Type",
        ("application/json", "application/x-npy", "image/png", "\xff", ""),
    ),
    (
        "Content-Type",
        ("multipart/form-data", "application/cloudevents+json", "text/x;"),
    ),
    ("ce-id", ("1", "\xff")),
    ("Expect", ("100-continue",)),
    ("Origin", ("http://a", "null")),
    ("Accept-Encoding", ("gzip", "\xff")),
    ("X-Forwarded-For", ("::1", "\xff")),
)


def shaped(number: int, examples: int) -> Iterator[Request]:
    """So many requests from this seed."""
    found: list[Request] = []

    @seed(number)
    @settings(
        max_examples=max(examples // (1 + _VARIANTS), 1),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_requests())
    def collect(some: list[Request]) -> None:
        found.extend(some)

    collect()
    yield from found


@st.composite
def _requests(draw: st.DrawFn) -> list[Request]:
    make = draw(st.sampled_from((_predict, _predict_file, _v1, _v2, _v2_binary, _look)))
    rng = random.Random(draw(st.integers(0, 2**64)))
    request = make(draw, rng)
    return [request, *(_variant(request, rng) for _ in range(_VARIANTS))]


def _predict(draw: st.DrawFn, rng: random.Random) -> Request:
    path = rng.choice(("/predict", "/predict", "/stream_predict", "/predict?top=1"))
    return Request("POST", path, _headers(rng), _rows(draw, rng, "quick"))


def _predict_file(draw: st.DrawFn, rng: random.Random) -> Request:
    kind = rng.choice(("npy", "PNG", "JPEG", "WEBP", "GIF", "BMP", "form", "form"))
    if kind == "npy":
        array = [models.QUICK_ROW] if rng.random() < 0.5 else draw(_JSON)
        try:
            body = models.npy(array)
        except (ValueError, OverflowError):
            body = models.npy([models.QUICK_ROW])
        return Request("POST", "/predict", (_type("application/x-npy"),), body)
    mode = rng.choice(("L", "RGB")) if kind != "GIF" else "L"
    body = models.picture("PNG" if kind == "form" else kind, mode)
    if kind != "form":
        return Request("POST", "/predict", (_type(f"image/{kind.lower()}"),), body)
    count = rng.choice((1, 1, 2, 70))
    part = b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + body
    whole = b"".join(b"--edge\r\n" + part + b"\r\n" for _ in range(count))
    headers = (_type("multipart/form-data; boundary=edge"),)
    path = f"/predict?top={rng.choice(('1', '0', '3', 'x', '9' * 30))}"
    return Request("POST", path, headers, whole + b"--edge--\r\n")


def _v1(draw: st.DrawFn, rng: random.Random) -> Request:
    name = draw(_NAMES | _NAMES | _ODD_NAMES)
    which = draw(st.just("") | st.just("/versions/1") | _VERSIONS | _LABELS)
    verb = rng.choice(("predict",) * 5 + ("classify", "regress", "explain", "PREDICT"))
    body = _rows(draw, rng, name if name in models.NAMES else "quick")
    headers = _headers(rng)
    if rng.random() < 0.1:
        event = {"specversion": "1.0", "id": "1", "source": "x", "type": "y"}
        right = {"instances": [models.QUICK_ROW]}
        data = right if rng.random() < 0.5 else junk(rng)
        body = dumped(damaged(event | {"data": data}, rng), rng)
        headers = (*headers, _type("application/cloudevents+json"))
    return Request("POST", f"/v1/models/{name}{which}:{verb}", headers, body)


def _v2(draw: st.DrawFn, rng: random.Random) -> Request:
    name = draw(_NAMES | _NAMES | _ODD_NAMES)
    which = draw(st.just("") | st.just("/versions/1") | _VERSIONS)
    value: Any = {"inputs": models.v2_inputs(name if name in models.NAMES else "quick")}
    value |= rng.choice(({}, {"id": "1"}, {"parameters": {"timeout": 10**6}}))
    value |= rng.choice(
        ({}, {"outputs": [{"name": "output"}]}, {"outputs": draw(_JSON)})
    )
    body = dumped(damaged(value, rng) if rng.random() < 0.9 else draw(_JSON), rng)
    return Request("POST", f"/v2/models/{name}{which}/infer", _headers(rng), body)


def _v2_binary(draw: st.DrawFn, rng: random.Random) -> Request:
    tensor = models.v2_inputs("quick")[0]
    del tensor["data"]
    data = rng.randbytes(rng.choice((0, 15, 16, 16, 16, 32)))
    tensor["parameters"] = {"binary_data_size": draw(st.integers(-1, 40) | st.just(16))}
    value: Any = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = dumped(damaged(value, rng) if rng.random() < 0.5 else value, rng)
    size = str(rng.choice((len(head), len(head), 0, len(head) + 1, 10**9)))
    headers = (("Inference-Header-Content-Length", size),)
    body = data if size == "0" else head + data
    return Request("POST", "/v2/models/quick/infer", headers, body)


def _look(draw: st.DrawFn, rng: random.Random) -> Request:
    name = draw(_NAMES | _ODD_NAMES | _LATIN)
    which = draw(st.just("") | _VERSIONS | _LABELS)
    end = rng.choice(("", "/metadata", "/ready", "/config", "/stats", "/infer", "/"))
    spare = rng.choice((models.SPARE, "nobody", "%ff"))
    path = rng.choice(
        (
            *(f"/v1/models/{name}{which}{end}", f"/v2/models/{name}{which}{end}"),
            *("/", "/healthz", "/readyz", "/metrics", "/v2", "/v2/models/stats"),
            *("/v2/health/live", "/v2/health/ready", "/v1/models", "/v2/models"),
            *("/v2/repository/index", f"/v2/repository/{name}/index"),
            f"/v2/repository/models/{spare}/{rng.choice(('load', 'unload'))}",
            f"/v2/repository/mine/models/{spare}/load",
            "/" + draw(_LATIN).replace("#", ""),
            f"//{rng.choice(('v2', 'predict', 'v1/models'))}?{draw(_LATIN)}",
        )
    )
    body = dumped(draw(_JSON), rng) if rng.random() < 0.5 else b""
    return Request(rng.choice((*_METHODS, *("POST", "GET") * 4)), path, (), body)


def _rows(draw: st.DrawFn, rng: random.Random, model: str) -> bytes:
    rows = [models.row(model)] * rng.choice((1, 1, 2, 5))
    value: Any = {"instances": rows}
    if rng.random() < 0.3:
        columns = {"prices": [[1, 2, 3]], "customer": ["Ann"]}
        value = {"inputs": columns if model == "till" else rows}
    if rng.random() < 0.1:
        value["signature_name"] = rng.choice(("pack", "", "serving_default", 7))
    return dumped(damaged(value, rng) if rng.random() < 0.9 else draw(_JSON), rng)


def _variant(request: Request, rng: random.Random) -> Request:
    """The same request with another damage."""
    method, path, headers, body = (
        *(request.method, request.path, request.headers),
        request.body,
    )
    edit = rng.randrange(8)
    if edit == 0:
        headers = (*headers, *_headers(rng, 3))
    elif edit == 1:
        encoding, pack = rng.choice(_PACKERS)
        headers = (*headers, ("Content-Encoding", encoding))
        packed = pack(body)
        body = packed if rng.random() < 0.5 else damaged_bytes(packed, rng)
    elif edit == 2:
        method = rng.choice(_METHODS)
    else:
        body = damaged_bytes(body, rng)
    return Request(method, path, headers, body)


_PACKERS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    # A bomb: 20 MB in 20 KB.
    ("gzip", lambda body: gzip.compress(body + b" " * 20_000_000, 1)),
)


def _headers(rng: random.Random, most: int = 1) -> tuple[tuple[str, str], ...]:
    chosen = rng.sample(_HEADERS, rng.randint(0, most))
    return tuple((name, rng.choice(values)) for name, values in chosen)


def _type(content_type: str) -> tuple[str, str]:
    return "Content-Type", content_type
