"""CORS at each rim of real servers: what a page of another origin may send and read."""

import contextlib

import pytest

from testing.server import free_port, installed, running, serving, simulated_models
from tests.support import worker_classes

ECHO = {"base_ms": 0, "input_shape": [2], "outputs": 2}
ROW = b'{"instances": [[1, 2]]}'
SHOP, OTHER = "https://shop.example", "https://other.example"
KEYS = {"api_keys": "s3cret", "admin_keys": "4dmin"}
KEY = {"Authorization": "Bearer s3cret"}
ALLOW = "Access-Control-Allow-Origin"
INFER = "/v2/models/m/infer"
UNLOAD = "/v2/repository/models/m/unload"
LIMIT = 70_000


@contextlib.contextmanager
def _uvicorn(**settings):
    port = free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}"]
    with running(command, port, ready=False, check_exit=False, **settings) as server:
        server.wait_until_ready(0)
        yield server


RIMS = [*worker_classes.ALL, pytest.param(None, id="uvicorn")]


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return simulated_models(folder, m=ECHO, broken={"outputs": 0})


@pytest.fixture(name="server", scope="module", params=RIMS)
def _server(request, models):
    """A server with keys that allows one origin."""
    settings = {"model_dir": models, "default_model": "m", **KEYS}
    settings |= {"allowed_origins": SHOP, "max_body_bytes": str(LIMIT)}
    arguments = request.param
    made = (
        _uvicorn(**settings) if arguments is None else serving(*arguments, **settings)
    )
    with made as server:
        yield server


def _preflight(server, path, origin=SHOP, method="POST"):
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    return server.request("OPTIONS", path, headers=asked)


@pytest.mark.parametrize(
    "path", ["/predict", "/v1/models/m:predict", INFER, "/readyz", UNLOAD]
)
def test_preflight_is_answered_without_a_key(server, path):
    """It names the methods, the headers, and for how long a browser may remember."""
    reply = _preflight(server, path)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers[ALLOW] == SHOP
    assert "Origin" in reply.headers["Vary"]
    assert reply.headers["X-Request-Id"]
    assert "POST" in reply.headers["Access-Control-Allow-Methods"]
    assert int(reply.headers["Access-Control-Max-Age"]) > 0
    allowed = reply.headers["Access-Control-Allow-Headers"].lower().split(", ")
    assert {
        *("authorization", "content-type", "x-request-timeout-ms", "x-request-id"),
        "inference-header-content-length",
    } <= set(allowed)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/predict", ROW, KEY, 200),
        ("/predict", b"{}", KEY, 400),
        ("/predict", ROW, {}, 401),
        (UNLOAD, b"", {}, 401),
        (UNLOAD, b"{}", KEY, 403),
        ("/v1/models/none:predict", ROW, KEY, 404),
        ("/nothing", ROW, KEY, 404),
        ("/healthz", ROW, KEY, 405),
        ("/predict", b"1" * (LIMIT + 1), KEY, 413),
        (UNLOAD, b"1" * (LIMIT + 1), {}, 401),
        ("/v1/models/broken:predict", ROW, KEY, 503),
    ],
)
def test_response_to_an_allowed_origin_can_be_read(server, path, body, headers, status):
    """Errors as well; the page sees the version, the batch and the time to wait."""
    reply = server.request("POST", path, body, {**headers, "Origin": SHOP})
    assert reply.status == status
    assert reply.headers.get_all(ALLOW) == [SHOP]
    assert "Origin" in reply.headers["Vary"]
    shown = reply.headers["Access-Control-Expose-Headers"].split(", ")
    assert {"X-Model-Version", "X-Batch-Size", "Server-Timing", "Retry-After"} < set(
        shown
    )


@pytest.mark.parametrize("origin", [OTHER, "null", f"{SHOP}:8443", None])
def test_response_to_another_origin_allows_nothing(server, origin):
    """Caches are told that it depends on the origin; programs send none."""
    headers = {**KEY, **({"Origin": origin} if origin else {})}
    for method, path, body in (("POST", "/predict", ROW), ("GET", "/v1/models", None)):
        reply = server.request(method, path, body, headers)
        assert (reply.status, reply.headers[ALLOW]) == (200, None)
        assert "Origin" in reply.headers["Vary"]
    if origin is not None:
        refused = _preflight(server, "/predict", origin)
        assert (refused.status, refused.headers[ALLOW]) == (401, None)
        assert b"to BASKET_ALLOWED_ORIGINS" in refused.body


def test_cors_is_off_by_default(models):
    """No response has any of its headers, and a preflight none either."""
    settings = {"model_dir": models, "default_model": "m", "api_keys": "s3cret"}
    with serving("--threads=4", **settings) as server:
        replies = [
            server.request("POST", "/predict", ROW, {**KEY, "Origin": SHOP}),
            server.request("GET", "/healthz", headers={"Origin": SHOP}),
            _preflight(server, "/predict"),
        ]
    assert [each.status for each in replies] == [200, 200, 401]
    for reply in replies:
        assert "Vary" not in reply.headers
        assert not [each for each in reply.headers if each.startswith("Access-Control")]


@pytest.mark.parametrize("allowed", ["*", f"{OTHER}, {SHOP}"])
def test_allowed_origin_may_use_a_loopback_server_without_keys(models, allowed):
    """A rebound Host is refused as before, and a change without an admin key."""
    settings = {"model_dir": models, "default_model": "m", "allowed_origins": allowed}
    page = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    with serving("--threads=4", **settings) as server:
        reply = server.request("POST", "/predict", ROW, page)
        assert reply.json() == {"predictions": [[1.0, 2.0]]}
        assert reply.headers[ALLOW] == ("*" if allowed == "*" else SHOP)
        assert ("Vary" in reply.headers) == (allowed != "*")
        assert server.request("POST", UNLOAD, b"{}", page).status == 403
        rebound = {**page, "Host": "evil.example"}
        assert server.request("POST", "/predict", ROW, rebound).status == 403
        # Frames and pictures send no Origin, and CORS is not for them.
        embedded = {"Sec-Fetch-Site": "cross-site"}
        assert server.request("GET", "/v1/models", headers=embedded).status == 403
        evil = server.request(
            "POST", "/predict", ROW, {"Origin": "http://evil.example"}
        )
        assert evil.status == (200 if allowed == "*" else 403)
        if evil.status == 403:
            assert "BASKET_ALLOWED_ORIGINS" in evil.json()["error"]
            assert evil.headers[ALLOW] is None
