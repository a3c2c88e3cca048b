"""Who may do what: strangers, clients and admins, with and without keys."""

import contextlib
import functools
import json
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from app.web.flask_app import CHANGING
from testing.server import simulated_models
from tests.support.exchanges import error, started_client

CLIENT = {"Authorization": "Bearer client"}
ADMIN = {"Authorization": "Bearer admin"}
STRANGER = {"Authorization": "Bearer other"}
NO_KEY: dict[str, str] = {}
JSON = {"Content-Type": "application/json"}
API_KEYS = {"api_keys": ("client",)}
ADMIN_KEYS = {"admin_keys": ("admin",)}
UNLOAD = "/v2/repository/models/m/unload"
FOREIGN = {"Host": "evil.example"}
ROW = {"instances": [[1.0]]}
HEALTH = (
    *("/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"),
    *("/v2/models/m/ready", "/v2/models/m/versions/1/ready"),
)
# For clients.
READ = (
    *("/metrics", "/openapi.json", "/page/state"),
    *("/v1/models/m", "/v2/models/m", "/v2/models/stats"),
)


@pytest.fixture(name="serve")
def _serve(tmp_path):
    """Start an application with the models `m`, and `bad`, which can't be loaded."""
    clients = []
    models = {"m": {"base_ms": 0, "input_shape": [1], "outputs": 1}}
    folder = Path(simulated_models(tmp_path, **models))

    def serve(*, bad=False, **settings):
        if bad:
            (tmp_path / "bad" / "1").mkdir(parents=True)
            (tmp_path / "bad" / "1" / "simulated.json").write_text("{")
        running = started_client(folder, default_model="m", **settings)
        clients.append(running)
        return running.__enter__()

    yield serve
    for each in clients:
        each.__exit__(None, None, None)


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory):
    """Return the application of these settings, one for all tests that change none."""
    models = {"m": {"base_ms": 0, "input_shape": [1], "outputs": 1}}
    folder = Path(simulated_models(tmp_path_factory.mktemp("models"), **models))
    with contextlib.ExitStack() as stack:

        @functools.cache
        def shared(api_keys=(), admin_keys=()):
            keys = {"api_keys": api_keys, "admin_keys": admin_keys}
            running = started_client(folder, default_model="m", **keys)
            return stack.enter_context(running)

        yield shared


def unload(client, key, **headers):
    return client.post(UNLOAD, data=b"{}", headers=JSON | key | headers)


@pytest.mark.parametrize(
    ("key", "status", "reason"),
    [(STRANGER, 401, "unauthorized"), (CLIENT, 403, "forbidden")],
)
def test_refused_requests_are_counted_on_all_routes(shared, key, status, reason):
    """Tries of keys are in the metrics, whether or not a model is asked."""
    client = shared(("client",), ("admin",))

    def counted():
        series = f'basket_rejected_total{{reason="{reason}"}} '
        lines = client.get("/metrics", headers=CLIENT).text.splitlines()
        return sum(float(each.split()[-1]) for each in lines if each.startswith(series))

    before = counted()
    error(unload(client, key), status)
    assert counted() == before + 1


def test_refused_requests_are_counted_at_once(shared):
    """Another process answers the next scrape: nothing waits in this one."""
    client = shared(("client",), ("admin",))
    series = "basket_rejected_total", {"reason": "unauthorized"}
    error(unload(client, STRANGER), 401)
    before = REGISTRY.get_sample_value(*series)
    error(unload(client, STRANGER), 401)
    assert REGISTRY.get_sample_value(*series) == before + 1


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize(
    ("settings", "allowed", "refused"),
    [
        ({}, [NO_KEY, STRANGER], []),
        (API_KEYS, [CLIENT], [NO_KEY, STRANGER, ADMIN]),
        (API_KEYS | ADMIN_KEYS, [CLIENT, ADMIN], [NO_KEY, STRANGER]),
        (ADMIN_KEYS, [NO_KEY, STRANGER, ADMIN], []),
    ],
    ids=["no keys", "API keys", "both", "admin keys"],
)
def test_client_reads_and_predicts(shared, path, settings, allowed, refused):
    """An admin does what a client does; without API keys everyone is a client."""
    client = shared(**settings)
    for key in allowed:
        assert client.get(path, headers=key).status_code == 200
        assert client.post("/predict", json=ROW, headers=key).status_code == 200
    for key in refused:
        error(client.get(path, headers=key), 401)
        error(client.post("/predict", json=ROW, headers=key), 401)


@pytest.mark.parametrize(
    ("settings", "key", "status", "text"),
    [
        ({}, NO_KEY, 403, "set BASKET_ADMIN_KEYS"),
        ({}, STRANGER, 403, "set BASKET_ADMIN_KEYS"),
        (API_KEYS, NO_KEY, 401, "Authorization: Bearer KEY"),
        (API_KEYS, CLIENT, 403, "set BASKET_ADMIN_KEYS"),
        (ADMIN_KEYS, NO_KEY, 401, "an admin key: Authorization: Bearer KEY"),
        (ADMIN_KEYS, STRANGER, 401, "an admin key: Authorization: Bearer KEY"),
        (ADMIN_KEYS, {"Authorization": "Basic admin"}, 401, "Bearer KEY"),
        (API_KEYS | ADMIN_KEYS, NO_KEY, 401, "Authorization: Bearer KEY"),
        (API_KEYS | ADMIN_KEYS, STRANGER, 401, "Authorization: Bearer KEY"),
        (API_KEYS | ADMIN_KEYS, CLIENT, 403, "this takes an admin key; given an API"),
    ],
)
@pytest.mark.parametrize("verb", ["load", "unload"])
def test_change_without_an_admin_key_is_refused(
    shared, verb, settings, key, status, text
):
    """The model stays, and the error says what is missing."""
    client = shared(**settings)
    path = UNLOAD.replace("unload", verb)
    reply = client.post(path, data=b"{}", headers=JSON | key)
    assert text in error(reply, status)
    assert ("WWW-Authenticate" in reply.headers) is (status == 401)
    assert client.get("/v2/models/m/ready").status_code == 200


@pytest.mark.parametrize("settings", [ADMIN_KEYS, API_KEYS | ADMIN_KEYS])
def test_admin_changes_the_server(serve, settings):
    """With an admin key a model is unloaded, and loaded again."""
    client = serve(**settings)
    assert unload(client, ADMIN).json == {"name": "m", "unload": True}
    assert client.get("/v2/models/m/ready").status_code == 503
    path = UNLOAD.replace("unload", "load")
    assert client.post(path, headers=JSON | ADMIN).status_code == 200


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        (None, 200),
        ("text/plain", 400),
        ("text/plain; application/json", 400),
        ("application/x-www-form-urlencoded", 400),
        ("multipart/form-data; boundary=x", 400),
        ("application/jsonp", 400),
        ("application/json, text/plain", 400),
    ],
)
def test_change_takes_json_only(serve, content_type, status):
    """A type that a page may send to another site is refused; none is Triton's."""
    sent = {} if content_type is None else {"Content-Type": content_type}
    client = serve(**ADMIN_KEYS)
    reply = client.post(UNLOAD, data=b"{}", headers=ADMIN | sent)
    assert reply.status_code == status
    if status == 400:
        text = f"Content-Type: expected application/json, given {content_type!r}"
        assert error(reply, 400) == text


def test_every_route_that_changes_the_server_takes_an_admin_key(serve):
    """A POST either predicts, or lists models, or refuses an API key."""
    client = serve(**API_KEYS, **ADMIN_KEYS)
    listing = {"index", "of_repository"}
    posts = {
        rule.endpoint
        for rule in client.application.url_map.iter_rules()
        if "POST" in rule.methods and rule.endpoint in client.application.view_functions
    }
    assert posts - listing == set(CHANGING)
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        error(client.open(UNLOAD, method=method, headers=CLIENT), 405)
    assert client.options(UNLOAD, headers=CLIENT).status_code == 200
    error(client.options(UNLOAD), 401)


@pytest.mark.parametrize("path", HEALTH)
def test_stranger_sees_a_bare_status(serve, path):
    """With API keys, health has no shape, no path and no reason for a stranger."""
    client = serve(**API_KEYS, **ADMIN_KEYS)
    for key in (NO_KEY, STRANGER):
        reply = client.get(path, headers=key)
        assert reply.status_code == 200
        assert set(reply.json) <= {"status", "live", "ready", "name"}
    if path == "/readyz":
        for key in (CLIENT, ADMIN):
            seen = client.get(path, headers=key).json
            assert seen["models"]["m"]["inputs"]


def test_readyz_tells_strangers_no_reasons(serve):
    """A model that can't be loaded is a bare 503 to them, and named to clients."""
    client = serve(bad=True, ready="all", **API_KEYS, **ADMIN_KEYS)
    assert error(client.get("/readyz"), 503) == "not ready"
    for key in (CLIENT, ADMIN):
        seen = client.get("/readyz", headers=key)
        assert seen.status_code == 503
        assert "bad" in seen.json["not_ready"]


def test_ready_server_with_a_failed_model_says_so_to_clients_alone(serve):
    """A stranger gets a bare 200, and a client the reason beside it."""
    client = serve(bad=True, **API_KEYS)
    assert client.get("/readyz").json == {"status": "ready"}
    assert client.get("/v2/health/ready").json == {"ready": True}
    assert "bad" in client.get("/readyz", headers=CLIENT).json["not_ready"]


@pytest.mark.parametrize("settings", [{}, ADMIN_KEYS], ids=["no keys", "admin keys"])
def test_readyz_is_open_without_api_keys(serve, settings):
    """Everyone is a client then, and metadata is open as well."""
    seen = serve(bad=True, **settings).get("/readyz").json
    assert "bad" in seen["not_ready"]
    assert seen["models"]["m"]["inputs"]


def test_stuck_models_are_named_to_clients_only(serve, monkeypatch):
    """To a stranger /healthz says that there is no progress, and not where."""
    client = serve(**API_KEYS)
    health = client.application.wsgi_app.server.health
    monkeypatch.setattr(health, "stuck", lambda: ["m"])
    for path in ("/", "/healthz"):
        assert error(client.get(path), 503) == "no progress while requests wait"
        seen = error(client.get(path, headers=CLIENT), 503)
        assert seen == "no progress while requests wait: m"


@pytest.mark.parametrize(
    "path", ["/v2/models/none/ready", "/v2/models/m/versions/9/ready"]
)
def test_unknown_model_is_not_ready_to_strangers(serve, path):
    """They can't find out by its status which models there are."""
    client = serve(bad=True, **API_KEYS)
    reply = client.get(path)
    of_bad = client.get("/v2/models/bad/ready")
    assert (reply.status_code, of_bad.status_code) == (503, 503)
    assert reply.json == {"name": path.split("/")[3], "ready": False}
    assert of_bad.json == {"name": "bad", "ready": False}
    error(client.get(path, headers=CLIENT), 404)


@pytest.mark.parametrize("key", [NO_KEY, STRANGER, CLIENT], ids=str)
def test_options_and_head_have_the_status_of_get(serve, key):
    """A load balancer that asks so learns what the others learn, with any key.

    Health says that the server is not ready; other routes may refuse the key.
    """
    client = serve(bad=True, ready="all", **API_KEYS)
    paths = (*HEALTH, *READ, "/v2/models/bad/ready", "/v2/models/nobody/ready", "/docs")
    statuses = {}
    for path in paths:
        got = client.get(path, headers=key)
        asked = client.options(path, headers=key)
        statuses[path] = got.status_code
        if path.startswith("/v1/"):
            continue  # 400, as in TensorFlow Serving
        assert client.head(path, headers=key).status_code == got.status_code, path
        assert asked.status_code == got.status_code, path
        if got.status_code == 200 or path in HEALTH:
            assert asked.headers["Allow"] == "GET, HEAD, OPTIONS"
            assert asked.headers["Content-Length"] == "0"
            assert asked.data == b""
    assert statuses["/readyz"] == statuses["/v2/models/bad/ready"] == 503
    assert statuses["/healthz"] == 200


# Pages of other sites.


@pytest.mark.parametrize("settings", [{}, ADMIN_KEYS], ids=["no keys", "admin keys"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT"])
def test_foreign_host_is_refused_on_every_route(shared, settings, method):
    """Without API keys health and unknown paths are no exception on loopback."""
    client = shared(**settings)
    for path in (*HEALTH, *READ, UNLOAD, "/none", "/predict", "/V1/", "/v2/"):
        reply = client.open(path, method=method, headers=FOREIGN)
        assert reply.status_code == 403
        if method != "HEAD":
            assert "BASKET_ALLOWED_HOSTS" in error(reply, 403)


@pytest.mark.parametrize("path", ["/", "/docs"])
@pytest.mark.parametrize(("method", "is_followed"), [("GET", True), ("POST", False)])
def test_only_a_get_follows_a_link_to_a_page(shared, path, method, is_followed):
    """A form of another site that is sent to a page is refused."""
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    reply = shared().open(path, method=method, headers=headers)
    assert (reply.status_code == 200) is is_followed
    if not is_followed:
        assert "Sec-Fetch-Site" in error(reply, 403)


def test_foreign_host_is_allowed_by_the_setting(serve):
    """The name in BASKET_ALLOWED_HOSTS is answered, and no other one."""
    client = serve(allowed_hosts=("evil.example",))
    assert client.get("/readyz", headers=FOREIGN).status_code == 200
    assert client.get("/readyz", headers={"Host": "other"}).status_code == 403


def test_api_key_is_enough_under_any_host(serve):
    """With API keys a page can't send one, and Host is not looked at."""
    client = serve(**API_KEYS)
    foreign = {**FOREIGN, "Origin": "http://evil.example"}
    assert client.get("/readyz", headers=foreign).status_code == 200
    error(client.post("/predict", json=ROW, headers=foreign), 401)
    reply = client.post("/predict", json=ROW, headers=foreign | CLIENT)
    assert reply.status_code == 200


def test_admin_key_from_a_foreign_host_is_refused(serve):
    """Without API keys the admin's requests are checked like all others."""
    client = serve(**ADMIN_KEYS)
    error(unload(client, ADMIN, **FOREIGN), 403)
    assert client.get("/v2/models/m/ready").status_code == 200


def test_refused_prediction_is_counted_and_does_not_run(serve, submitted):
    """Its reason is in basket_rejected_total."""
    client = serve()
    series = 'basket_rejected_total{reason="forbidden"}'

    def count():
        text = client.get("/metrics").text
        found = [line for line in text.splitlines() if line.startswith(series)]
        return float(found[0].split()[-1]) if found else 0.0

    before = count()
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    reply = client.post("/predict", data=json.dumps(ROW), headers=headers)
    error(reply, 403)
    assert count() == before + 1
    assert not submitted
