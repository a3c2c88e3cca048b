"""A replica of the Ray Serve deployment, called as Ray calls it."""

import asyncio
import gc
from importlib.util import find_spec

import pytest

from app import create_app as build_server
from app.errors import BadInput, ModelLoadError, SettingsError, UnknownModel
from testing.server import simulated_models

if find_spec("ray") is None:
    pytest.skip("ray is not installed: requirements/ray.txt", allow_module_level=True)

from app.ray_serve import replica as module
from app.ray_serve.replica import Replica

ECHO = {"base_ms": 0, "input_shape": [1], "outputs": 1}
LABELS = "[labels]\nstable = 1\n[traffic]\nstable = 1\n"


@pytest.fixture(autouse=True)
def _no_metrics(monkeypatch):
    """Outside Ray there is nothing to hand them to."""
    monkeypatch.setattr(module.RayMetrics, "start", lambda _: None)


@pytest.fixture(name="servers")
def _servers(monkeypatch):
    """The servers that the replica of a test creates."""
    servers = []

    def create_app(settings):
        servers.append(build_server(settings))
        return servers[-1]

    monkeypatch.setattr(module, "create_app", create_app)
    return servers


@pytest.fixture(name="echo")
def _echo(tmp_path, servers):
    """A replica with the model echo."""
    models = simulated_models(tmp_path, echo=ECHO)
    (tmp_path / "echo" / "basket.toml").write_text(LABELS)
    replica = Replica({"BASKET_MODEL_DIR": models})
    asyncio.run(replica.__serve_build_asgi_app__())
    yield replica
    servers[0].loader.close(timeout_s=5)


async def get(replica, path):
    """Return the messages that the replica's ASGI application sends."""
    asgi, sent = await replica.__serve_build_asgi_app__(), []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    await asgi(scope, receive, send)
    return sent


def test_replica_is_built_when_all_models_are_ready(echo):
    """Ray routes to it from then on."""
    start, *_ = asyncio.run(get(echo, "/readyz"))
    assert start["status"] == 200


def test_replica_is_frozen_before_it_loads_models(tmp_path, servers, monkeypatch):
    """Garbage collections do not visit the server, as in other processes."""
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(bool(servers)))
    replica = Replica({"BASKET_MODEL_DIR": simulated_models(tmp_path, echo=ECHO)})
    asyncio.run(replica.__serve_build_asgi_app__())
    servers[0].loader.close(timeout_s=5)
    assert frozen == [True]


@pytest.mark.parametrize(
    ("model", "text"),
    [({"outputs": 0}, "bad: simulated.json: times must"), (None, "holds no model")],
    ids=["broken", "none"],
)
def test_replica_without_a_ready_model_is_not_built(tmp_path, model, text):
    """The deploy fails with what /readyz would say."""
    simulated_models(tmp_path, **({"bad": model} if model else {}))
    replica = Replica({"BASKET_MODEL_DIR": str(tmp_path)})
    with pytest.raises(ModelLoadError, match=text):
        asyncio.run(replica.__serve_build_asgi_app__())


def test_response_leaves_the_request_id_to_rays_proxy(echo):
    """The proxy adds X-Request-Id, so that clients would see it twice."""
    start, body, *_ = asyncio.run(get(echo, "/healthz"))
    assert start["status"] == 200
    names = {name.lower() for name, _ in start["headers"]}
    assert b"content-type" in names
    assert b"x-request-id" not in names
    assert body["body"]


def test_end_writes_what_is_recorded(echo, servers, monkeypatch):
    """Ray calls the method by its name before it kills the process."""
    closed = {}
    monkeypatch.setattr(servers[0].recording, "close", closed.update)
    echo.__del__()
    assert closed == {"timeout_s": 1}


def test_health_check_names_the_stuck_model(echo, servers, monkeypatch):
    """Ray logs the reason for which it replaces the replica."""
    echo.check_health()
    stuck = ["echo version 1"]
    monkeypatch.setattr(servers[0].health, "stuck", lambda: stuck)
    with pytest.raises(RuntimeError, match=r"no progress.*: echo version 1"):
        echo.check_health()


def test_traffic_that_is_no_longer_named_is_that_of_basket_toml(echo, servers):
    """What an earlier user_config has set does not stay."""
    routes = servers[0].catalog.routes
    config = {"traffic": {"echo": {"stable": 5}}}
    asyncio.run(echo.reconfigure(config))
    assert dict(routes("echo")[0].traffic) == {"stable": 5}
    asyncio.run(echo.reconfigure({}))
    assert dict(routes("echo")[0].traffic) == {"stable": 1}


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ([], SettingsError, r"user_config = \[\]: expected a mapping with the one key"),
        ({"trafic": {}}, SettingsError, "expected a mapping with the one key traffic"),
        ({"traffic": 3}, SettingsError, "traffic = 3: expected a mapping of models"),
        ({"traffic": {"echo": 3}}, SettingsError, "to weights by label"),
        ({"traffic": {"nope": {"stable": 1}}}, UnknownModel, "no model 'nope'"),
        ({"traffic": {"echo": {"old": 1}}}, BadInput, "old: there is no such label"),
    ],
)
def test_bad_user_config_is_named(echo, config, error, text):
    """Ray fails the deploy with the text."""
    with pytest.raises(error, match=text):
        asyncio.run(echo.reconfigure(config))
