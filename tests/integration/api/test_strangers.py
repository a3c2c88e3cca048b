"""Requests without an API key, on every route, in every form of its path."""

import json
import random
import re
import socket
from pathlib import Path
from urllib.parse import unquote

import pytest

from app import create_app
from app.settings import Settings
from testing.server import serving, simulated_models
from tests.support.front import Wire, chunked, get, post

KEY = "sesame"
MODELS = {"till": {"base_ms": 0, "input_shape": [2], "outputs": 2}}
DESCRIPTION = Path(__file__).parents[3] / "app" / "web" / "openapi.json"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
# Health, which load balancers ask for without a key, and the pages.
OPEN = (
    *("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"),
    *("/docs", "/page/app.js"),
    *("/v2/models/till/ready", "/v2/models/till/versions/1/ready"),
)
# What only an admin may ask for.
CHANGING = ("/v2/repository/models/till/unload", "/v2/repository/models/till/load")
FILLED = {
    **{"version": "1", "label": "stable", "rest": "models/till:predict"},
    "file": "app.js",
}
# Not 404 or 405: a stranger does not learn which routes there are.
REFUSALS = (401, 403)
FORMS = (
    "{}",
    "/{}",
    "//{}",
    "/.{}",
    "/x/..{}",
    "/%2e{}",
    "/%2E%2E{}",
    "{}/",
    "{}//",
    "{}/.",
    "{};x",
    "{};/healthz",
    "{}.json",
    "{}%00",
    "{}%0d%0aA:%20b",
    "{}%2fhealthz",
    "{}/../healthz",
    "{}/../../../../../healthz",
    "{}?x=/healthz",
    "http://front{}",
    "HTTP://healthz{}",
    "https://front//{}",
    "/healthz{}",
    "/healthz/..{}",
    "/healthz/..%2f{}",
    "/healthz;{}",
    "/healthz%3b{}",
    "/healthz%00{}",
    "/v2/models/till/ready/..{}",
    "/v2/models/till/ready{}",
)
# Keys that are not quite the right one.
KEYS = (
    "",
    "Authorization: Bearer wrong",
    "Authorization: Bearer",
    f"Authorization: Basic {KEY}",
    f"Authorization: {KEY}",
    f"Authorization: Bearer {KEY}x",
    f"Authorization: Bearer {KEY.upper()}",
    f"Authorization: Bearer x, Bearer {KEY}",
    f"Authorization: Bearer x\r\nAuthorization: Bearer {KEY}",
    f"Proxy-Authorization: Bearer {KEY}",
    f"X-Authorization: Bearer {KEY}",
    f"HTTP_AUTHORIZATION: Bearer {KEY}",
    f"Cookie: Authorization=Bearer {KEY}",
)


def routes(folder):
    """Return a path of each route that Flask or the description of the API has."""
    server = create_app(Settings(model_dir=folder, api_keys=(KEY,)))
    paths = {rule.rule for rule in server.flask.url_map.iter_rules()}
    paths |= set(json.loads(DESCRIPTION.read_text())["paths"])
    return sorted({re.sub(r"[<{]([^>}]*)[>}]", _fill, path) for path in paths})


def _fill(found):
    return FILLED.get(found[1].rpartition(":")[2], "till")


def forms(path):
    """Return the forms of a path that a router could take for the path."""
    words = path[1:]
    spelled = (
        "/" + words.replace("/", "%2f"),
        "/" + words.replace("/", "%252F"),
        "/" + words.replace("/", "//"),
        "/" + words.replace("/", "/./"),
        "/" + words.replace("/", "\\"),
        "/" + words.upper(),
        "/" + words.title(),
        "/" + "".join(f"%{ord(each):02x}" for each in words),
        "/" + words.replace(":", "%3a"),
    )
    return dict.fromkeys((*(form.format(path) for form in FORMS), *spelled))


class Stranger:
    """Sends requests without a key, on one connection as long as it is open."""

    def __init__(self, port):
        self._port = port
        self._wire = None

    def status(self, method, target, *headers):
        if self._wire is None or self._wire.closes:
            self.close()
            self._wire = Wire(socket.create_connection(("127.0.0.1", self._port), 20))
        lines = [f"{method} {target} HTTP/1.1", "Host: front", *filter(None, headers)]
        body = b"{}" if method in ("POST", "PUT", "PATCH") else b""
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        self._wire.send(head.encode(), body)
        return self._wire.response(is_head=method == "HEAD").status

    def close(self):
        if self._wire is not None:
            self._wire.close()


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    return simulated_models(tmp_path_factory.mktemp("models"), **MODELS)


@pytest.fixture(name="server", scope="module")
def _server(folder):
    settings = {"model_dir": folder, "default_model": "till"}
    keys = {"api_keys": KEY, "admin_keys": "admin"}
    with serving("--threads=4", **settings, **keys) as server:
        yield server


@pytest.fixture(name="stranger")
def _stranger(server):
    stranger = Stranger(server.port)
    yield stranger
    stranger.close()


def test_routes_are_known_to_clients_with_a_key(folder, stranger):
    """The paths here are those of the server, so that refusals mean something."""
    for path in routes(folder):
        key = f"Authorization: Bearer {KEY}"
        assert stranger.status("OPTIONS", path, key) not in (401, 403, 404)


def test_strangers_are_refused_on_every_route_in_every_form(folder, stranger):
    """Only health and pages need no key, whatever the method and the path are."""
    for path in routes(folder):
        for form in forms(path):
            for method in METHODS:
                status = stranger.status(method, form)
                is_open = method in ("GET", "HEAD", "OPTIONS") and asks_health(form)
                assert status in REFUSALS or is_open, (method, form, status)


def asks_health(target):
    """Return whether a target is an open route's, decoded and with single slashes."""
    path = re.sub(r"^https?://[^/]*", "", target, flags=re.I).partition("?")[0]
    return re.sub("/+", "/", unquote(path)) in OPEN


@pytest.mark.parametrize("header", KEYS, ids=range(len(KEYS)))
def test_wrong_keys_are_refused_on_every_route(folder, stranger, header):
    """A key counts only as a whole, and only in the one Authorization header."""
    for path in routes(folder):
        for method in ("GET", "POST"):
            status = stranger.status(method, path, header)
            is_open = path in OPEN and method == "GET"
            assert status in REFUSALS or is_open, (method, path, status)


def test_api_key_changes_no_model_in_any_form_of_a_path(stranger):
    """Load and unload take an admin key, whatever the method and the path are."""
    key = f"Authorization: Bearer {KEY}"
    for path in CHANGING:
        for form in forms(path):
            for method in METHODS:
                status = stranger.status(method, form, key)
                assert status >= 400 or method == "OPTIONS", (method, form, status)
        assert stranger.status("POST", path, key) == 403
        assert stranger.status("GET", "/v2/models/till/ready") == 200


def mixed(rng, count):
    """Return requests, as bytes with the status and the answer that each must get."""
    found = []
    for number in range(count):
        row = [number, rng.randrange(1000)]
        body = json.dumps({"instances": [row]}).encode()
        key = rng.choice((KEY, KEY, KEY[::-1], None))
        headers = [f"Authorization: Bearer {key}"] if key else []
        if rng.random() < 0.2:
            found.append((get("/healthz", *headers), 200, None))
        elif key == KEY and rng.random() < 0.2:
            sent = chunked("/predict", body[:9], body[9:], headers=headers)
            found.append((sent, 200, row))
        else:
            status = 200 if key == KEY else 401
            found.append((post("/predict", body, *headers), status, row))
    return found


@pytest.mark.parametrize("kind", ["keep-alive", "pipelined", "in pieces"])
def test_keys_count_for_their_own_request_on_a_shared_connection(server, kind):
    """Requests with a key, a wrong one and none are answered in order, each by its own.

    Their heads are alike, so that the server's cache of heads knows them all.
    """
    rng = random.Random(kind)
    for _ in range(20):
        requests = mixed(rng, 40)
        wire = Wire(socket.create_connection(("127.0.0.1", server.port), 20))
        if kind == "pipelined":
            wire.send(*(sent for sent, _, _ in requests))
        if kind == "in pieces":
            data = b"".join(sent for sent, _, _ in requests)
            while data:
                size = rng.choice((1, 7, 50, 200, 1000))
                wire.send(data[:size])
                data = data[size:]
        for sent, status, answer in requests:
            response = wire.ask(sent) if kind == "keep-alive" else wire.response()
            assert response.status == status
            if status == 401:
                assert response.error()
            elif answer:
                assert response.json()["predictions"] == [answer]
        wire.close()
