"""TensorFlow Serving's REST API and KServe's V1: routes, statuses and texts."""

import gzip
import json
import zlib
from typing import ClassVar

import numpy as np
import pytest

from app import create_app, telemetry
from app.batching.unbatched import Unbatched
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.repository.routing import Routes
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.exchanges import error
from tests.support.jobs import Notes, executor

LIMIT = 1000
ROW = {"point": [1.0, 2.0], "word": "hi"}
_FLOAT, _STRING = np.dtype(np.float32), np.dtype(object)


class Poet:
    """Two inputs and three outputs, and two signatures more."""

    platform = "poet"
    signatures: ClassVar = {
        DEFAULT_SIGNATURE: Signature(
            (TensorSpec("point", _FLOAT, (2,)), TensorSpec("word", _STRING, ())),
            (
                TensorSpec("sum", _FLOAT, ()),
                TensorSpec("text", _STRING, ()),
                TensorSpec("raw_bytes", _STRING, ()),
            ),
        ),
        "loud": Signature(
            (TensorSpec("word", _STRING, (None,)),),
            (TensorSpec("loud", _STRING, (None,)),),
        ),
        "half": Signature(
            (TensorSpec("x", np.dtype(np.float16), ()),),
            (TensorSpec("y", np.dtype(np.float64), ()),),
        ),
    }

    def __init__(self, version):
        self.version = version

    def run(self, batch, signature_name=DEFAULT_SIGNATURE):
        if signature_name == "half":
            return {"y": batch["x"].astype(float) / 2}
        words = batch["word"]
        if signature_name == "loud":
            return {"loud": np.vectorize(bytes.upper, otypes="O")(words)}
        sums = batch["point"].sum(axis=1) + np.float32(self.version)
        return {"sum": sums, "text": words, "raw_bytes": words}

    def close(self):
        pass


class Site:
    """An application with version 2 and 10 of the model poet, whose label is old."""

    def __init__(self, keys=(), limit_bytes=LIMIT):
        self.notes = Notes()
        settings = Settings(api_keys=keys, max_body_bytes=limit_bytes)
        server = create_app(settings)
        self.catalog = server.catalog
        self.serve("poet", 2)
        self.serve("poet", 10)
        self.catalog.route("poet", Routes({"old": 2, "gone": 3}))
        self.catalog.mark_settled("poet")
        self.client = server.flask.test_client()

    def serve(self, name, version):
        self.catalog.announce(name)
        poet = Poet(version)
        runner = Unbatched(executor(poet, 64, self.notes), 64)
        self.catalog.add(
            ServedModel(
                name,
                version,
                poet.platform,
                poet.signatures,
                ModelConfig(Settings()),
                runner,
                self.notes,
            )
        )

    def get(self, path, **rest):
        return self.client.get(path, **rest)

    def post(self, path, value=None, **rest):
        data = rest.pop("data", None) or json.dumps(value or {"instances": [ROW]})
        return self.client.post(path, data=data, **rest)


@pytest.fixture(name="site", scope="module")
def _site():
    """A Site for all tests that don't change its catalog."""
    return Site()


@pytest.fixture(name="own_site")
def _own_site():
    """A Site for one test."""
    return Site()


def version_of(response):
    assert response.status_code == 200, response.text
    return response.headers["X-Model-Version"]


# Predictions.


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/v1/models/poet:predict", "10"),
        ("/v1/models/poet/versions/2:predict", "2"),
        (f"/v1/models/poet/versions/{'0' * 30}10:predict", "10"),
        ("/v1/models/poet/labels/old:predict", "2"),
        ("/v1/models/%70oet/labels/%6Fld:predict", "2"),
        ("/V1/Models/poet/Versions/2:Predict", "2"),
        ("/v1/models/poet:predict?a=b:c", "10"),
    ],
)
def test_predict_by_version_label_or_newest(site, path, version):
    """The path chooses a version by number or label; else it is the newest."""
    response = site.post(path)
    assert version_of(response) == version
    assert response.mimetype == "application/json"
    assert response.json == {
        "predictions": [
            {"sum": 3.0 + int(version), "text": "hi", "raw_bytes": {"b64": "aGk="}}
        ]
    }


@pytest.mark.parametrize("name", ["team/poet", "a:b", "ü", "..", "a b", "models"])
def test_model_name_may_contain_any_character(own_site, name):
    """A name is decoded after the match, so that / and : may be in it."""
    own_site.serve(name, 4)
    encoded = "".join(f"%{byte:02X}" for byte in name.encode())
    if name == "ü":
        assert version_of(own_site.post("/v1/models/ü:predict")) == "4"
    assert version_of(own_site.post(f"/v1/models/{encoded}:predict")) == "4"
    assert own_site.get(f"/v1/models/{encoded}").json["name"] == name
    assert own_site.get(f"/v1/models/{encoded}/metadata").status_code == 200


def test_columns_are_answered_with_columns(site):
    """The columnar form of a request is that of the response."""
    columns = {"point": [[1, 2], [3, 4]], "word": ["a", {"b64": "/w=="}], "other": 0}
    response = site.post("/v1/models/poet:predict", {"inputs": columns})
    assert response.json == {
        "outputs": {
            "sum": [13.0, 17.0],
            "text": ["a", {"b64": "/w=="}],
            "raw_bytes": [{"b64": "YQ=="}, {"b64": "/w=="}],
        }
    }


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"instances": [["a"], ["b"]]}, {"predictions": [["A"], ["B"]]}),
        ({"instances": [{"word": ["a"]}]}, {"predictions": [["A"]]}),
        ({"inputs": [["a"], ["b"]]}, {"outputs": [["A"], ["B"]]}),
        ({"inputs": {"word": [["a", "b"]]}}, {"outputs": [["A", "B"]]}),
    ],
)
def test_signature_name_chooses_the_signature(site, asked, answer):
    """With one input and one output no name is needed, and none is returned."""
    response = site.post("/v1/models/poet:predict", {"signature_name": "loud", **asked})
    assert response.json == answer


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_tokens(site, token):
    """NaN and infinities are bare tokens in both directions, for float16 too."""
    body = f'{{"signature_name": "half", "instances": [{token}, 1]}}'
    response = site.post("/v1/models/poet:predict", data=body)
    assert response.text == f'{{"predictions":[{token},0.5]}}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"instances": []}, "'instances' must be a list/array with at least one row"),
        ({"instances": [ROW], "inputs": 1}, "expected only one of 'inputs' or"),
        ({"rows": 1}, "Missing 'inputs' or 'instances' key"),
        ({"instances": [1]}, "instances[0]: expected an object with point, word"),
        ({"signature_name": 1}, "'signature_name' key must be a string value."),
        (
            {"signature_name": "x"},
            'Serving signature name: "x" not found in signature def',
        ),
        ([1], "expected a JSON object"),
    ],
)
def test_bad_input_is_a_400(site, value, text):
    """A wrong request is a 400 with the reason and the place."""
    assert error(site.post("/v1/models/poet:predict", value), 400).startswith(text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The document is empty"),
        (b"{", "Expecting property name enclosed in double quotes at offset: 1"),
        (b"[" * 400_000, "maximum recursion depth exceeded"),
    ],
    ids=["empty", "cut off", "deep"],
)
def test_malformed_json_is_a_400(body, text):
    """Malformed JSON is a 400, however deeply it is nested."""
    response = Site(limit_bytes=1 << 20).client.post(
        "/v1/models/poet:predict", data=body
    )
    assert error(response, 400).startswith(f"JSON Parse error: {text}")


@pytest.mark.parametrize("content_type", ["text/plain", "image/png", None])
def test_predict_ignores_the_content_type(site, content_type):
    """A body is JSON with any Content-Type."""
    response = site.post("/v1/models/poet:predict", content_type=content_type)
    assert version_of(response) == "10"


# Unknown names.


@pytest.mark.parametrize(
    "verb", [":predict", ":classify", ":regress", ":explain", "/metadata"]
)
@pytest.mark.parametrize(
    ("which", "asked"),
    [
        ("nope", "Latest(nope)"),
        ("..%2Fetc%2Fpasswd", "Latest(../etc/passwd)"),
        ("poet/versions/7", "Specific(poet, 7)"),
        (f"poet/versions/{2**63 - 1}", f"Specific(poet, {2**63 - 1})"),
        ("poet/labels/gone", "Label(poet, gone)"),
        ("x" * 99, f"Latest({'x' * 80})"),
    ],
)
def test_unknown_model_or_version_is_a_404(site, verb, which, asked):
    """The 404 of an unknown model or version has TensorFlow Serving's text."""
    method = "GET" if verb == "/metadata" else "POST"
    text = error(site.client.open(f"/v1/models/{which}{verb}", method=method), 404)
    assert text == f"Servable not found for request: {asked}"


def test_unknown_label_is_a_400(site):
    """An unknown label is a 400, not a 404."""
    for response in (
        site.post("/v1/models/poet/labels/new:predict"),
        site.get("/v1/models/poet/labels/new/metadata"),
    ):
        assert error(response, 400) == "Unrecognized servable version label: new"


def test_loading_model_is_a_503(own_site):
    """A model without a ready version is a 503 with Retry-After."""
    own_site.catalog.announce("slow")
    response = own_site.post("/v1/models/slow:predict")
    assert error(response, 503) == "model 'slow': is loading"
    assert int(response.headers["Retry-After"]) >= 1
    assert error(own_site.get("/v1/models/slow/metadata"), 503)


def test_loading_version_is_a_503(own_site):
    """A loading version of a ready model is a 503, by its number and its label."""
    own_site.catalog.mark_loading("poet", 3)
    for which in ("versions/3", "labels/gone"):
        response = own_site.post(f"/v1/models/poet/{which}:predict")
        assert error(response, 503) == "model 'poet': version 3 is loading"
        assert int(response.headers["Retry-After"]) >= 1
        assert error(own_site.get(f"/v1/models/poet/{which}/metadata"), 503)


@pytest.mark.parametrize(
    ("verb", "status", "text"),
    [
        (
            "classify",
            400,
            "Expected classification signature method_name to be "
            "tensorflow/serving/classify. Was: tensorflow/serving/predict",
        ),
        (
            "Regress",
            400,
            "Expected regression signature method_name to be "
            "tensorflow/serving/regress. Was: tensorflow/serving/predict",
        ),
        ("explain", 501, "no model here has an explainer"),
    ],
)
def test_verbs_other_than_predict_are_refused(site, verb, status, text):
    """Verbs that no model has are a 400, explain is a 501."""
    assert error(site.post(f"/v1/models/poet:{verb}"), status) == text


# Malformed requests.


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/"),
        ("GET", "/v1/x"),
        ("GET", "/v1/models/"),
        ("GET", "/v1//models"),
        ("GET", "/v1/models/poet/"),
        ("GET", "/v1/models/poet:predict"),
        ("GET", "/v1/models/a:b"),
        ("GET", "/v1/models/poet/versions/x"),
        ("GET", "/v1/models/poet/versions/-1"),
        ("GET", "/v1/models/poet/versions/1%30"),
        ("GET", "/v1/models/poet/versions/%D9%A1"),
        ("GET", "/v1/models/poet/versions/2/labels/old"),
        ("GET", "/v1/models/team/poet"),
        ("GET", "/v1%2Fmodels/poet"),
        ("GET", "/%76%31/models/poet"),
        ("GET", "/v1/models/..%0A/x"),
        ("GET", "/v1/../healthz"),
        ("HEAD", "/v1/models/poet"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/poet"),
        ("POST", "/v1/models/poet/metadata"),
        ("POST", "/v1/models/poet:train"),
        ("POST", "/v1/models/poet:predict/"),
        ("POST", "/v1/models/poet%3Apredict"),
        ("POST", "/v1/models/poet/versions/x:predict"),
        ("POST", "/v1/models/poet/versions/2/labels/old:predict"),
        ("PUT", "/v1/models/poet:predict"),
        ("PATCH", "/v1/models/poet"),
        ("DELETE", "/v1/models/poet"),
        ("TRACE", "/v1/models/poet"),
        ("OPTIONS", "/v1/models/poet:predict"),
    ],
)
def test_malformed_path_or_method_is_a_400(site, method, path):
    """A request that matches no pattern is a 400 that repeats it, not a 404 or 405."""
    response = site.client.open(path, method=method)
    assert response.status_code == 400
    if method != "HEAD":
        assert error(response, 400) == f"Malformed request: {method} {path}"


def test_paths_outside_the_patterns(site):
    """A long path is repeated only in part; a path outside /v1/ is a 404."""
    assert len(error(site.get("/v1/" + "x" * 5000), 400)) < 300
    for path in ("/v1", "/v11/models", "/v3/models"):
        error(site.get(path), 404)


def test_invalid_version_is_a_400(site):
    """A version of too many digits, or without a model, is a 400 of its own."""
    for digits in (str(2**63), "9" * 30, "1" * 5000):
        path = f"/v1/models/poet/versions/{digits}"
        for response in (site.get(path), site.post(f"{path}:predict")):
            text = f"Failed to convert version: {digits[:40]} to numeric."
            assert error(response, 400) == text
    for rest in ("/versions/2", "/labels/old", "/versions/2/metadata"):
        text = error(site.get(f"/v1/models{rest}"), 400)
        assert text == "Missing model name in request."


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://a", 200), ("https://a", 200), ("file://a", 400), ("null", 400)],
)
def test_options_with_an_origin(site, origin, status):
    """OPTIONS with the origin of a web page is a 200, without CORS headers."""
    open_to_others = {"environ_overrides": {"SERVER_NAME": "10.0.0.7"}}
    headers = {"Origin": origin}
    response = site.client.options("/v1/models/poet", headers=headers, **open_to_others)
    assert response.status_code == status
    assert not [
        name for name, _ in response.headers if name.startswith("Access-Control")
    ]
    put = site.client.put("/v1/models/poet", headers=headers, **open_to_others)
    assert error(put, 400) == "Malformed request: PUT /v1/models/poet"


@pytest.mark.parametrize(
    "environ",
    [
        {
            "RAW_URI": "HTTP://host:80/mount/v1/models/a%20%C3%BC?a",
            "SCRIPT_NAME": "/mount",
        },
        {"RAW_URI": "", "REQUEST_URI": ""},
    ],
    ids=["absolute form of a mounted application", "no raw path"],
)
def test_raw_path_of_each_server(own_site, environ):
    """Host and mount prefix are ignored; a path that is only decoded is quoted."""
    own_site.serve("a ü", 1)
    response = own_site.get("/v1/models/a%20%C3%BC", environ_overrides=environ)
    assert response.json["name"] == "a ü"


# Status.

OK = {"error_code": "OK", "error_message": ""}


def test_status_lists_versions(site):
    """The status has all versions, highest first, each with its state."""
    versions = [
        {"version": "10", "state": "AVAILABLE", "status": OK},
        {"version": "2", "state": "AVAILABLE", "status": OK},
    ]
    for rest in ("", "/labels/old", "/labels/nope"):
        response = site.get(f"/v1/models/poet{rest}")
        assert response.status_code == 200
        assert response.json == {
            "name": "poet",
            "ready": True,
            "model_version_status": versions,
        }
    response = site.get("/v1/models/poet/versions/2")
    assert response.json["model_version_status"] == versions[1:]


def test_status_of_a_failed_version(own_site):
    """A failed version is END, with its error; the model is ready by another."""
    own_site.catalog.mark_loading("poet", 11)
    own_site.catalog.mark_failed("poet", 11, "no such layer")
    failed = {
        "version": "11",
        "state": "END",
        "status": {"error_code": "INTERNAL", "error_message": "no such layer"},
    }
    answer = own_site.get("/v1/models/poet").json
    assert answer["ready"] is True
    assert answer["model_version_status"][0] == failed
    response = own_site.get("/v1/models/poet/versions/11")
    assert response.status_code == 200
    assert response.json == {
        "name": "poet",
        "ready": False,
        "model_version_status": [failed],
    }


def test_status_of_a_loading_model(own_site):
    """A model without any version is a 503, one with a loading version a 200."""
    own_site.catalog.announce("slow")
    assert own_site.get("/v1/models").json == {"models": ["poet", "slow"]}
    response = own_site.get("/v1/models/slow")
    assert error(response, 503) == "model 'slow': is loading"
    assert response.headers["Retry-After"] == "1"
    own_site.catalog.mark_loading("slow", 1)
    response = own_site.get("/v1/models/slow")
    assert response.status_code == 200
    (version,) = response.json["model_version_status"]
    assert version == {"version": "1", "state": "LOADING", "status": OK}
    assert own_site.get("/v1/models/slow/versions/1").status_code == 200


def test_status_of_an_unknown_model_or_version_is_a_404(site):
    """The 404s of the status have texts of their own."""
    text = error(site.get("/v1/models/nope"), 404)
    assert text == "Could not find any versions of model nope"
    text = error(site.get("/v1/models/poet/versions/7"), 404)
    assert text == "Could not find version 7 of model poet"


# Metadata.


def _tensor(name, dtype, *sizes):
    return {
        "dtype": dtype,
        "tensor_shape": {
            "dim": [{"size": size, "name": ""} for size in sizes],
            "unknown_rank": False,
        },
        "name": name,
    }


@pytest.mark.parametrize(
    ("rest", "version"), [("", "10"), ("/versions/2", "2"), ("/labels/old", "2")]
)
def test_metadata_has_all_signatures(site, rest, version):
    """Metadata has all signatures of a version; sizes are strings, -1 if free."""
    response = site.get(f"/v1/models/poet{rest}/metadata")
    assert response.status_code == 200
    spec = {"name": "poet", "signature_name": "", "version": version}
    assert response.json["model_spec"] == spec
    signatures = response.json["metadata"]["signature_def"]["signature_def"]
    assert list(signatures) == ["serving_default", "loud", "half"]
    assert signatures["serving_default"] == {
        "inputs": {
            "point": _tensor("serving_default_point:0", "DT_FLOAT", "-1", "2"),
            "word": _tensor("serving_default_word:0", "DT_STRING", "-1"),
        },
        "outputs": {
            "sum": _tensor("serving_default_sum:0", "DT_FLOAT", "-1"),
            "text": _tensor("serving_default_text:0", "DT_STRING", "-1"),
            "raw_bytes": _tensor("serving_default_raw_bytes:0", "DT_STRING", "-1"),
        },
        "method_name": "tensorflow/serving/predict",
    }
    loud = signatures["loud"]["inputs"]["word"]
    assert loud == _tensor("loud_word:0", "DT_STRING", "-1", "-1")
    assert signatures["half"]["inputs"]["x"]["dtype"] == "DT_HALF"
    assert signatures["half"]["outputs"]["y"]["dtype"] == "DT_DOUBLE"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("i1", "DT_INT8"), ("u8", "DT_UINT64"), ("?", "DT_BOOL"), ("c8", "DT_COMPLEX64")],
)
def test_metadata_names_each_dtype(own_site, monkeypatch, dtype, name):
    """Metadata has the TensorFlow names of dtypes."""
    spec = TensorSpec("x", np.dtype(dtype), ())
    monkeypatch.setattr(Poet, "signatures", {"s": Signature((spec,), (spec,))})
    own_site.serve("typed", 1)
    answer = own_site.get("/v1/models/typed/metadata").json
    signature = answer["metadata"]["signature_def"]["signature_def"]["s"]
    assert signature["inputs"]["x"]["dtype"] == name


# Compressed bodies.

BODY = json.dumps({"instances": [ROW]}).encode()
GZIP, ZLIB = gzip.compress(BODY, mtime=0), zlib.compress(BODY)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", GZIP, id="gzip"),
        pytest.param(" GZIP", GZIP, id="in capitals"),
        pytest.param("x-gzip", GZIP, id="x-gzip"),
        pytest.param(
            "gzip",
            gzip.compress(BODY[:9]) + gzip.compress(b"") + gzip.compress(BODY[9:]),
            id="members",
        ),
        pytest.param("gzip", GZIP + gzip.compress(b"") * 9, id="empty members"),
        pytest.param("deflate", ZLIB, id="deflate"),
        pytest.param("identity", BODY, id="identity"),
        pytest.param("", BODY, id="none"),
    ],
)
def test_compressed_body(site, encoding, body):
    """A gzip or deflate body is decompressed."""
    headers = {"Content-Encoding": encoding}
    response = site.post("/v1/models/poet:predict", data=body, headers=headers)
    assert version_of(response) == "10"


BOMB = f"the body is larger than {LIMIT} bytes when unpacked"


@pytest.mark.parametrize(
    ("encoding", "body", "status", "text"),
    [
        ("gzip", BODY, 400, "the body is not gzip: Error -3"),
        ("gzip", ZLIB, 400, "the body is not gzip: Error -3"),
        ("deflate", GZIP, 400, "the body is not deflate: Error -3"),
        ("gzip", GZIP[:-1], 400, "the body is not gzip: it is cut off"),
        ("gzip", GZIP + b"x", 400, "something follows the gzip data"),
        ("gzip", GZIP + GZIP[:-1], 400, "the body is not gzip: it is cut off"),
        ("gzip", GZIP + b"\x1f\x8bxx", 400, "the body is not gzip: Error -3"),
        ("deflate", ZLIB + GZIP, 400, "something follows the deflate data"),
        ("gzip", gzip.compress(bytes(LIMIT)) + gzip.compress(b"x"), 413, BOMB),
        ("gzip", gzip.compress(bytes(LIMIT + 1)), 413, BOMB),
        ("gzip", gzip.compress(bytes(LIMIT)), 400, "JSON Parse error: "),
        ("gzip", bytes(LIMIT + 1), 413, f"the body is larger than {LIMIT} bytes"),
        ("br", BODY, 501, "Content-Encoding: 'br' is not known here"),
        ("gzip, gzip", BODY, 501, "Content-Encoding: 'gzip, gzip' is not known"),
    ],
    ids=[
        *("plain", "zlib as gzip", "gzip as zlib", "truncated", "data behind"),
        *("truncated member", "no member", "data behind zlib", "bomb of two members"),
        *("bomb", "at the limit", "large before", "unknown", "twice"),
    ],
)
def test_malformed_compressed_body(site, encoding, body, status, text):
    """A body that is not as its Content-Encoding says is a 400, a bomb a 413."""
    headers = {"Content-Encoding": encoding}
    response = site.post("/v1/models/poet:predict", data=body, headers=headers)
    assert error(response, status).startswith(text)
    if status == 501:
        assert response.headers["Accept-Encoding"] == "gzip, deflate"


# CloudEvents.

EVENT = {"specversion": "1.0", "id": "1", "source": "here", "type": "ask"}
STRUCTURED = "application/cloudevents+json"
SUM = {"signature_name": "half", "instances": [3]}


def test_binary_cloud_event(own_site):
    """Attributes in headers are answered with attributes in headers."""
    own_site.serve("a b", 1)
    headers = {f"ce-{name}": value for name, value in EVENT.items()}
    response = own_site.post("/v1/models/a%20b:predict", SUM, headers=headers)
    assert response.json == {"predictions": [1.5]}
    assert response.mimetype == "application/json"
    assert response.headers["ce-specversion"] == "1.0"
    assert response.headers["ce-source"] == "io.kserve.inference.a%20b"
    assert response.headers["ce-type"] == "io.kserve.inference.response"
    assert response.headers["ce-id"] != "1"
    del headers["ce-type"]
    response = own_site.post("/v1/models/a%20b:predict", SUM, headers=headers)
    assert not [name for name, _ in response.headers if name.lower().startswith("ce-")]


@pytest.mark.parametrize(
    "data",
    [
        {"data": SUM},
        {"data_base64": "eyJzaWduYXR1cmVfbmFtZSI6ICJoYWxmIiwgImluc3RhbmNlcyI6IFszXX0="},
    ],
    ids=["data", "base64"],
)
def test_structured_cloud_event(site, data):
    """An event as the body is answered with an event as the body."""
    event = EVENT | data
    response = site.post("/v1/models/poet:predict", event, content_type=STRUCTURED)
    assert response.status_code == 200
    assert response.content_type == STRUCTURED
    answer = response.json
    assert answer.pop("id") != "1"
    assert answer.pop("time")
    assert answer == {
        "specversion": "1.0",
        "source": "io.kserve.inference.poet",
        "type": "io.kserve.inference.response",
        "datacontenttype": "application/json",
        "data": {"predictions": [1.5]},
    }


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ([1], "expected a JSON object: a CloudEvent"),
        (EVENT, "the CloudEvent has no 'data'"),
        ({**EVENT, "data_base64": "?"}, "the CloudEvent's data_base64: "),
        ({"data": SUM}, "the CloudEvent has no 'specversion' that is a string"),
        ({**EVENT, "id": 1}, "the CloudEvent has no 'id' that is a string"),
        ({**EVENT, "data": [1]}, "expected a JSON object"),
    ],
)
def test_malformed_cloud_event_is_a_400(site, event, text):
    """The 400 says which attribute or data is missing."""
    response = site.post("/v1/models/poet:predict", event, content_type=STRUCTURED)
    assert error(response, 400).startswith(text)


# Metrics and API keys.


def test_only_predict_requests_are_counted(own_site, monkeypatch):
    """Predictions are counted, failed ones too; other requests are not."""
    unknown = []
    monkeypatch.setattr(
        telemetry,
        "write_calls_without_model",
        lambda calls: unknown.extend(status for status, *_ in calls),
    )
    own_site.post("/v1/models/poet:predict")
    own_site.post("/v1/models/poet:predict", [1])
    own_site.post("/v1/models/poet:classify")
    own_site.post("/v1/models/nope:predict")
    for path in ("", "/poet", "/poet/metadata", "/nope", "/poet/versions/x"):
        own_site.get(f"/v1/models{path}")
    own_site.get("/v1/models/poet:predict")
    assert own_site.notes.requests == [200, 400]
    assert unknown == [404]


def test_every_v1_route_requires_an_api_key():
    """With keys set, a request without one is a 401, a malformed one too."""
    site = Site(keys=("key",))
    for path in ("/v1/models", "/v1/models/poet", "/v1/x"):
        assert site.get(path).status_code == 401
    assert site.post("/v1/models/poet:predict").status_code == 401
    assert site.get("/").json == {"status": "alive"}
    headers = {"Authorization": "Bearer key"}
    assert site.post("/v1/models/poet:predict", headers=headers).status_code == 200
