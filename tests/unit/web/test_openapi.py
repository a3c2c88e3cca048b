"""The OpenAPI description: its route, its completeness, and checks against it."""

import json
import re

import pytest

from app import create_app, errors
from app.settings import Settings
from testing.contract import Contract, read_document
from testing.exchange import Answer, Request
from tests.support.exchanges import error

DOCUMENT = read_document()
CONTRACT = Contract(DOCUMENT)
JSON = {"content-type": "application/json"}
ASK = Request("POST", "/predict")
LOOK = Request("GET", "/v1/models/digits")


def operations():
    """Return each path of the document with each of its methods."""
    return {
        (path, method.upper())
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
    }


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return create_app(Settings(model_dir=tmp_path_factory.mktemp("models"))).flask


def test_every_route_is_in_the_document(app):
    """The description lists exactly the routes and methods of the server."""
    routes = {
        (re.sub(r"<(?:[^<>]*:)?([a-z]+)>", r"{\1}", rule.rule), method)
        for rule in app.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
        # V1 has one rule for all of its paths, which the next test requests one by one.
        if not rule.rule.lower().startswith("/v1/")
    }
    assert routes == {each for each in operations() if not each[0].startswith("/v1/")}


def test_every_documented_v1_path_is_routed(app):
    """Each documented V1 path reaches the lookup of a model, which finds none."""
    paths = sorted(each for each in operations() if each[0].startswith("/v1/"))
    assert len(paths) == 19
    for path, method in paths:
        filled = re.sub(r"\{[a-z]+\}", "1", path)
        response = app.test_client().open(filled, method=method)
        assert response.status_code == (200 if path == "/v1/models" else 404), path


def test_every_error_status_is_in_the_document():
    """The documented statuses of /predict are those of the error classes."""
    statuses = {
        each.status for each in vars(errors).values() if hasattr(each, "status")
    }
    responses = set(DOCUMENT["paths"]["/predict"]["post"]["responses"])
    assert responses == {"200"} | {str(status) for status in statuses}


def test_every_reference_resolves():
    """Each $ref of the document names a part of it."""
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT))):
        part = DOCUMENT
        for name in reference.split("/"):
            part = part[name]


def test_openapi_json_returns_the_description(app):
    """GET returns the file as it is, HEAD its headers, another method a 405."""
    client = app.test_client()
    response = client.get("/openapi.json")
    assert (response.status_code, response.content_type) == (200, "application/json")
    assert response.json == DOCUMENT
    head = client.head("/openapi.json")
    assert (head.status_code, head.data) == (200, b"")
    assert head.content_length == response.content_length == len(response.data)
    post = client.post("/openapi.json")
    assert "/openapi.json takes no POST" in error(post, 405)
    assert set(post.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


def test_openapi_json_requires_an_api_key(tmp_path):
    """With API keys set, the description needs one, as /metrics does."""
    server = create_app(Settings(model_dir=tmp_path, api_keys=("key",)))
    client = server.flask.test_client()
    error(client.get("/openapi.json"), 401)
    headers = {"Authorization": "Bearer key"}
    assert client.get("/openapi.json", headers=headers).json == DOCUMENT


def answer(status, value, headers=JSON):
    return Answer(status, headers, json.dumps(value).encode())


@pytest.mark.parametrize(
    ("request_", "given", "problem"),
    [
        (ASK, answer(500, {"error": "the model failed"}), "status 500"),
        (None, answer(500, {"error": "x"}), "status 500"),
        (ASK, answer(400, {"error": "in /tmp/models"}), "a traceback or a path"),
        (None, answer(400, {"error": "Traceback (most ..."}), "a traceback or a path"),
        (
            Request("GET", "/page/state"),
            answer(400, {"error": "in /tmp/models"}),
            "a traceback or a path",
        ),
        (ASK, answer(400, {"error": "x" * 3000}), "an error of 30"),
        (ASK, answer(400, {"error": ""}), "not the schema of status 400"),
        (ASK, answer(400, ["error"]), "not the schema of status 400"),
        (
            ASK,
            answer(400, {"error": "x"}, {"content-type": "text/html"}),
            "content type",
        ),
        (ASK, answer(409, {"error": "x"}), "status 409"),
        (ASK, answer(201, {}), "status 201"),
        (ASK, answer(200, {"outcome": 1}), "not the schema of status 200"),
        (LOOK, answer(200, {"name": "digits"}), "not the schema of status 200"),
        (Request("GET", "/new"), answer(200, {}), "status 200 is not documented"),
        (Request("PUT", "/predict"), answer(405, "x"), "not the schema"),
        (None, answer(503, {"name": "m"}), "not the schema of status 503"),
    ],
)
def test_contract_names_the_problem_of_an_undocumented_answer(request_, given, problem):
    """An answer that breaks the description, or any leak, is reported with a reason."""
    assert problem in CONTRACT.problem(request_, given)


@pytest.mark.parametrize(
    ("request_", "given"),
    [
        (ASK, answer(200, {"predictions": [[1.0, float("nan")]]})),
        (ASK, answer(200, {"class_id": "7", "class_name": "seven", "score": 1.0})),
        (ASK, answer(400, {"error": "no rows"})),
        (ASK, answer(414, {"error": "too long"})),
        (
            Request("GET", "/readyz"),
            answer(
                200,
                {
                    "status": "ready",
                    "default_model": None,
                    "models": {},
                    "problems": {"digits": ["version 2: no weights"]},
                    "not_ready": {"pears": "is loading"},
                },
            ),
        ),
        (
            Request("GET", "/page/state?since=0"),
            answer(
                200,
                {
                    "now": 1.5,
                    "rights": "client",
                    "sees_all": True,
                    "default_model": None,
                    "models": [],
                    "samples": [],
                    "settings": [
                        {
                            "name": "BASKET_MODEL_DIR",
                            "value": "/tmp/models",
                            "from": "environment",
                            "model": None,
                        }
                    ],
                },
            ),
        ),
        (Request("GET", "/v2/health/live"), answer(503, {"live": False})),
        (Request("HEAD", "/predict"), Answer(405, JSON)),
        (Request("GET", "/v2/models/stats"), answer(200, {"model_stats": []})),
        (Request("GET", "/V1/MODELS"), answer(200, {"models": []})),
        (Request("GET", "/new"), answer(404, {"error": "nothing"})),
        (None, answer(431, {"error": "too many headers"})),
        (None, answer(503, {"name": "m", "ready": False})),
    ],
)
def test_contract_accepts_a_documented_answer(request_, given):
    """An answer that follows the description has no problem."""
    assert CONTRACT.problem(request_, given) is None
