"""The Open Inference Protocol over HTTP: every route, status and text."""

import gzip
import json
import logging
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient

from app import create_app
from app.promotion.record import Records
from app.protocols.describe import VERSION
from app.repository.rollouts.standing import digest_of
from app.repository.scan import fingerprint
from app.settings import Settings
from app.telemetry import ModelMetrics
from tests.support.cases import case
from tests.support.engines import Blocks, Raises
from tests.support.exchanges import error
from tests.support.metrics import count_call
from tests.support.tensors import EchoAll, body_of

INPUTS = {"x": ("f4", None, 2), "n": ("i8",), "s": ("O",)}
ONE = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 1, 2], "data": [1, 2.5]},
        {"name": "n", "datatype": "INT64", "shape": [1], "data": [2**62]},
        {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["é"]},
    ]
}
JSON = {"Content-Type": "application/json"}
JSON_SIZE = "Inference-Header-Content-Length"
KEY = {"Authorization": "Bearer key"}
ADMIN = {"Authorization": "Bearer admin"}
AN_HOUR = 3_600_000_000


class Site:
    """An application whose model m, in versions 2 and 10, runs on `engine`."""

    def __init__(self, folder, engine, **settings):
        self.engine = engine
        self.folder = folder
        self.app = create_app(Settings(model_dir=folder, **settings))
        self.loader = self.app.loader
        self.client = self.app.flask.test_client()

    def start(self):
        self.loader.start()
        assert self.loader.wait(10)

    def get(self, path, **rest):
        return self.client.get(path, **rest)

    def post(self, path, body=b"", **rest):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, data=data, **rest)

    def infer(self, body, size=None, path="/v2/models/m/infer", **headers):
        if size is not None:
            headers[JSON_SIZE] = str(size)
        return self.post(path, body, headers=headers)


def build_site(folder, monkeypatch, engine, versions=(2, 10), **settings):
    """Return a Site that is not started, with these versions of the model m."""
    monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
    for version in versions:
        write_version(folder, "m", version)
    labels = "".join(f"v{version} = {version}\n" for version in versions)
    (folder / "m" / "basket.toml").write_text(f"[labels]\n{labels}")
    return Site(folder, engine, **settings)


@pytest.fixture(name="make_site")
def _make_site(tmp_path, monkeypatch):
    """Build a Site for one test."""
    sites = []

    def make(engine=None, *, start=True, **settings):
        engine = engine or EchoAll(**INPUTS)
        sites.append(build_site(tmp_path, monkeypatch, engine, **settings))
        if start:
            sites[-1].start()
        return sites[-1]

    yield make
    for each in sites:
        if isinstance(each.engine, Blocks):
            each.engine.unblock()
        each.loader.close(10)


def shared_site(tmp_path_factory, **settings):
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as monkeypatch:
        site = build_site(folder, monkeypatch, EchoAll(**INPUTS), **settings)
        site.start()
    yield site
    site.loader.close(10)


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory):
    """A Site for all tests that don't change it."""
    yield from shared_site(tmp_path_factory)


@pytest.fixture(name="keyed_site", scope="module")
def _keyed_site(tmp_path_factory):
    """A Site with both kinds of keys, for all tests that don't change it."""
    keys = {"api_keys": ("key",), "admin_keys": ("admin",)}
    yield from shared_site(tmp_path_factory, **keys)


def write_version(folder, name, version, text="{}"):
    """Write a version that the engine of the fixture opens."""
    place = folder / name / str(version)
    place.mkdir(parents=True)
    (place / "simulated.json").write_text(text)


def tensors(response):
    """The outputs by name: datatype, shape and data."""
    assert response.status_code == 200, response.text
    return {
        each["name"]: (each["datatype"], each["shape"], each.get("data"))
        for each in response.json["outputs"]
    }


# Infer.


def test_infer_answers_json_with_json(site):
    """A JSON request gets a JSON response from the newest version, or the given one."""
    response = site.infer({**ONE, "id": "me"})
    assert response.content_type == "application/json"
    assert JSON_SIZE not in response.headers
    assert tensors(response) == {
        "out_x": ("FP32", [1, 1, 2], [1, 2.5]),
        "out_n": ("INT64", [1], [2**62]),
        "out_s": ("BYTES", [1], ["é"]),
    }
    assert response.json["id"] == "me"
    assert response.json["model_name"] == "m"
    assert response.json["model_version"] == "10"
    assert response.headers["X-Model-Version"] == "10"
    assert response.headers["X-Batch-Size"] == "1"
    older = site.infer(ONE, path="/v2/models/m/versions/2/infer")
    assert older.json["model_version"] == "2"
    assert "id" not in older.json
    assert site.infer({**ONE, "id": ""}).json["id"] == ""


def test_binary_tensors_in_and_out(site):
    """Binary inputs are answered with binary outputs, and the size of the JSON."""
    arrays = {
        "x": np.array([[[1, 2]], [[3, 4]]], "f4"),
        "n": np.array([5, 6]),
        "s": np.array([b"\xff", b""], object),
    }
    body, size = body_of(arrays, binary=True)
    response = site.infer(body, size)
    assert response.content_type == "application/octet-stream"
    answer = InferenceServerClient.parse_response_body(
        response.data, header_length=int(response.headers[JSON_SIZE])
    )
    for name, array in arrays.items():
        assert answer.as_numpy(f"out_{name}").tolist() == array.tolist()


def test_binary_outputs_for_json_inputs(site):
    """binary_data_output returns binary outputs for JSON inputs."""
    response = site.infer({**ONE, "parameters": {"binary_data_output": True}})
    size = int(response.headers[JSON_SIZE])
    assert json.loads(response.data[:size])["outputs"][1]["parameters"] == {
        "binary_data_size": 8
    }
    assert len(response.data) == size + 8 + 8 + 6
    body = json.dumps(ONE).encode()
    assert list(tensors(site.infer(body, len(body)))) == ["out_x", "out_n", "out_s"]


def test_raw_binary_body(make_site):
    """With a JSON size of 0 the body is one row, and the response is binary."""
    m = make_site(EchoAll(x=("f4", None, 2)))
    values = np.arange(6, dtype="f4")
    response = m.infer(values.tobytes(), 0)
    assert response.status_code == 200
    size = int(response.headers[JSON_SIZE])
    assert json.loads(response.data[:size])["outputs"][0]["shape"] == [1, 3, 2]
    assert response.data[size:] == values.tobytes()


def test_json_size_counts_decompressed_bytes(make_site):
    """The JSON size of a gzip body is that of the decompressed JSON."""
    arrays = {"x": np.zeros((2, 2), "f4")}
    body, size = body_of(arrays, binary=True)
    response = make_site(EchoAll(x=("f4", 2))).infer(
        gzip.compress(body), size, **{"Content-Encoding": "gzip"}
    )
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json"])
def test_infer_ignores_the_content_type(site, content_type):
    """A body is read the same with any Content-Type."""
    response = site.post("/v2/models/m/infer", ONE, content_type=content_type)
    assert response.status_code == 200


@pytest.mark.parametrize("size", ["-1", "1.0", "", "x", "²", "9" * 30, "1 2"])
def test_malformed_json_size_is_a_400(site, size):
    """A JSON size that is not a whole number is a 400 that repeats it."""
    text = error(site.infer(ONE, size), 400)
    assert text.startswith(f"{JSON_SIZE}: expected a number of bytes, given")


SEQUENCE = ONE | {"parameters": {"sequence_id": 1}}


@pytest.mark.parametrize(
    ("body", "size", "status", "text"),
    [
        (b"", None, 400, "JSON Parse error: The document is empty"),
        (b"{", None, 400, "JSON Parse error"),
        (b"{}", 3, 400, "3 bytes of JSON are announced, and the body has 2"),
        (
            b"{}",
            0,
            400,
            "a body without JSON is one input, and the model takes several",
        ),
        (b"[]", None, 400, "expected a JSON object"),
        (ONE | {"outputs": [{"name": "y"}]}, None, 400, "the model has no output 'y'"),
        (SEQUENCE, None, 501, "models here keep nothing from one request to the next"),
    ],
)
def test_bad_or_unsupported_input_is_a_400_or_501(site, body, size, status, text):
    """The error has the reason why the model can't take the request."""
    assert text in error(site.infer(body, size), status)


@pytest.mark.parametrize(
    ("limit_ms", "timeout"),
    [
        pytest.param(60_000, 99_000, id="the request's own"),
        pytest.param(99, 60_000_000, id="the shorter one"),
    ],
)
def test_timeout_parameter_sets_the_deadline(make_site, submitted, limit_ms, timeout):
    """parameters.timeout, in microseconds, shortens the server's limit only."""
    m = make_site(batch_timeout_micros=AN_HOUR, request_timeout_ms=limit_ms)
    response = m.infer({**ONE, "parameters": {"timeout": timeout}})
    assert "the request's deadline" in error(response, 504)
    (job,) = submitted
    assert job.deadline - job.owner.arrived_at == pytest.approx(0.099)


def test_failing_model_is_a_500(make_site):
    """A model that raises is a 500 without the text of its error."""
    m = make_site(Raises(ValueError("secret")))
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [13]}
    assert error(m.infer({"inputs": [tensor]}), 500) == "the model failed (ValueError)"


def test_only_infer_requests_are_counted(site):
    """Infer changes the metrics; metadata, health and index do not."""
    before = site.get("/metrics").text
    for path in ("", "/health/ready", "/models", "/models/m", "/models/m/config"):
        assert site.get(f"/v2{path}").status_code == 200
    site.post("/v2/repository/index")
    lines = [line for line in before.splitlines() if line.startswith("basket_")]
    assert set(lines) <= set(site.get("/metrics").text.splitlines())
    site.infer(ONE)
    assert not set(lines) <= set(site.get("/metrics").text.splitlines())


# Names and paths.


@pytest.mark.parametrize("verb", ["", "/ready", "/config", "/stats", "/infer"])
def test_unknown_model_name_is_a_404(site, verb):
    """A name that no model has is a 404, whatever it would be as a path."""
    ask = site.post if verb == "/infer" else site.get
    for name in ("..", "%2e%2e", "nobody", "m%00", "m.", "..%5Cm", "M", "%C3%A9"):
        with case(name):
            text = error(ask(f"/v2/models/{name}{verb}"), 404)
            assert "there are: m" in text or "there is nothing at" in text


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/..%2Fm/infer",
        "/v2/models/%2Fetc%2Fpasswd/infer",
        "/v2/models/m/versions/../infer",
        "/v2/models/m/versions/-1/infer",
        "/v2/models/m/versions/1.0/infer",
        "/v2/models/m/versions/x/infer",
        "/v2/models/m/versions//infer",
        "/v2/models/m/versions/3/infer",
        f"/v2/models/m/versions/{'9' * 5000}/infer",
        "/v2/models/m/versions/%D9%A3/infer",
        "/v2/repository/models/..%2F..%2Fetc/load",
        "/v2/repository/models/../load",
        "/v2/nothing",
        "/v3",
    ],
)
def test_unknown_path_is_a_404(keyed_site, path):
    """An encoded slash, or a version that is not a number, matches no route."""
    response = keyed_site.post(path, ONE, headers=ADMIN | JSON)
    assert len(error(response, 404)) < 300


@pytest.mark.parametrize("rest", ["", "/config", "/stats", "/ready"])
@pytest.mark.parametrize("version", ["%D9%A2", "9" * 5000])
def test_version_that_is_no_number_matches_no_route(site, version, rest):
    """Only ASCII digits are a version, as many as Python reads; m has the version 2."""
    assert site.get(f"/v2/models/m/versions/2{rest}").status_code == 200
    error(site.get(f"/v2/models/m/versions/{version}{rest}"), 404)


def test_wrong_method_is_a_405(site):
    """A method that a route does not take is a 405 in JSON."""
    assert "takes no POST" in error(site.post("/v2"), 405)
    assert "takes no GET" in error(site.get("/v2/models/m/infer"), 405)


# Health.


def test_readiness_requires_a_warm_model(make_site):
    """Server and model are ready only after the warm-up of the model."""
    engine = Blocks()
    m = make_site(engine, start=False)
    assert m.get("/v2/health/live").json == {"live": True}
    m.loader.start()
    engine.wait_until_started()
    for path, about in (("health", {}), ("models/m", {"name": "m"})):
        response = m.get(f"/v2/{path}/ready")
        assert response.status_code == 503
        assert response.json == {**about, "ready": False}
    for verb in ("", "/config", "/stats"):
        response = m.get(f"/v2/models/m{verb}")
        assert error(response, 503) == "model 'm': is loading"
        assert response.headers["Retry-After"]
    engine.unblock()
    assert m.loader.wait(10)
    assert m.get("/v2/health/ready").json == {"ready": True}
    assert m.get("/v2/models/m/ready").json == {"name": "m", "ready": True}


def test_failed_version_is_not_ready(make_site):
    """A version that can not be loaded is a 503, while its model is ready."""

    def ask(m, version):
        return m.post(f"/v2/models/m/versions/{version}/infer")

    m = make_site(start=False)
    write_version(m.folder, "m", 11)
    (m.folder / "m" / "11" / "simulated.json").unlink()
    m.start()
    response = m.get("/v2/models/m/versions/11/ready")
    assert (response.status_code, response.json) == (503, {"name": "m", "ready": False})
    assert m.get("/v2/models/m/ready").status_code == 200
    for answer in (m.get("/v2/models/m/versions/11"), ask(m, 11)):
        assert "'m': version 11: " in error(answer, 503)
        assert answer.headers["Retry-After"] == "1"
    for answer in (m.get("/v2/models/m/versions/12/ready"), ask(m, 12)):
        assert error(answer, 404) == "model 'm': version 12 is not served"
    for version in (2, 10):
        response = m.get(f"/v2/models/m/versions/{version}/ready")
        assert (response.status_code, response.json) == (
            200,
            {"name": "m", "ready": True},
        )


# Metadata.


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_server_metadata(site, path):
    """Server metadata has the name, the version and the extensions."""
    response = site.get(path)
    assert response.json == {
        "name": "basket",
        "version": VERSION,
        "extensions": [
            "binary_tensor_data",
            "model_configuration",
            "model_repository",
            "parameters",
            "statistics",
        ],
    }
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == VERSION
    assert site.get("/v2/models").json == {"models": ["m"]}


def test_model_metadata(site):
    """Model metadata has versions, platform, and shapes that begin with -1."""
    metadata = site.get("/v2/models/m").json
    assert metadata == {
        "name": "m",
        "versions": ["2", "10"],
        "platform": "echo_all",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, -1, 2]},
            {"name": "n", "datatype": "INT64", "shape": [-1]},
            {"name": "s", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [
            {"name": "out_x", "datatype": "FP32", "shape": [-1, -1, 2]},
            {"name": "out_n", "datatype": "INT64", "shape": [-1]},
            {"name": "out_s", "datatype": "BYTES", "shape": [-1]},
        ],
    }
    of_one = site.get("/v2/models/m/versions/2").json
    assert of_one == {**metadata, "versions": ["2"]}
    assert "version 3 is not served" in error(site.get("/v2/models/m/versions/3"), 404)


def test_metadata_is_that_of_the_newest_version(make_site, monkeypatch):
    """Without a version, metadata and configuration are those of the newest."""
    engines = {"2": EchoAll(old=("f4",)), "10": EchoAll(new=("f4",))}
    m = make_site(start=False)
    monkeypatch.setattr(
        "app.engines.simulated.open_engine", lambda file, _: engines[file.parent.name]
    )
    m.start()
    assert m.get("/v2/models/m").json["inputs"][0]["name"] == "new"
    assert m.get("/v2/models/m/config").json["input"][0]["name"] == "new"
    assert m.get("/v2/models/m/versions/2").json["inputs"][0]["name"] == "old"
    old = m.get("/v2/models/m/versions/2/config").json
    assert old["input"][0]["name"] == "old"


def test_model_configuration(make_site):
    """The configuration has max_batch_size, and tensors without the batch.

    Those of one value have no empty dims, but are reshaped.
    """
    scalar = {"dims": [1], "reshape": {"shape": []}}
    response = make_site(max_batch_size=16, batch_timeout_micros=500).get(
        "/v2/models/m/config"
    )
    assert response.json == {
        "name": "m",
        "platform": "echo_all",
        "max_batch_size": 16,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "n", "data_type": "TYPE_INT64", **scalar},
            {"name": "s", "data_type": "TYPE_STRING", **scalar},
        ],
        "output": [
            {"name": "out_x", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "out_n", "data_type": "TYPE_INT64", **scalar},
            {"name": "out_s", "data_type": "TYPE_STRING", **scalar},
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": 500},
    }


def test_unbatched_model_configuration_and_unknown_datatype(make_site):
    """Without batching there is no dynamic_batching; an unknown dtype is a 501."""
    m = make_site(EchoAll(x=("c8",)), batching=False)
    assert "complex64 has no datatype" in error(m.get("/v2/models/m"), 501)
    m = make_site(batching=False, versions=(3,))
    assert "dynamic_batching" not in m.get("/v2/models/m/versions/3/config").json


# Statistics.


def statistics(m, path="/v2/models/m/stats"):
    """Return the statistics by version."""
    (*stats,) = m.get(path).json["model_stats"]
    return {each["version"]: each for each in stats}


def grown(before, after):
    """Return by how much the counts of one version grew."""
    kinds = after["inference_stats"]
    counts = {
        kind: kinds[kind]["count"] - before["inference_stats"][kind]["count"]
        for kind in kinds
    }
    for kind in ("inference_count", "execution_count"):
        counts[kind] = after[kind] - before[kind]
    return {kind: count for kind, count in counts.items() if count}


def spent_ns(before, after):
    """Return by how much the times of one version grew."""
    return {
        kind: value["ns"] - before["inference_stats"][kind]["ns"]
        for kind, value in after["inference_stats"].items()
    }


def test_statistics_are_in_nanoseconds(site):
    """Decoding is compute_input, encoding is compute_output, in nanoseconds."""
    before = statistics(site)["10"]
    count_call(ModelMetrics("m", "10"), 200, 10.0, stages_s=(1, 2, 3, 4))
    spent = spent_ns(before, statistics(site)["10"])
    stages = ("compute_input", "queue", "compute_infer", "compute_output")
    assert [spent[stage] for stage in stages] == pytest.approx([1e9, 2e9, 3e9, 4e9])


def test_statistics_count_rows_batches_and_requests(site):
    """A response counts once in each stage, with its rows and its batch."""
    before = statistics(site)
    arrays = {
        "x": np.zeros((3, 1, 2), "f4"),
        "n": np.zeros(3, "i8"),
        "s": np.array([b""] * 3, object),
    }
    body, size = body_of(arrays, binary=True)
    assert site.infer(body, size).status_code == 200
    after = statistics(site)
    assert grown(before["2"], after["2"]) == {}
    stages = ("queue", "compute_input", "compute_infer", "compute_output")
    assert grown(before["10"], after["10"]) == {
        **dict.fromkeys(("success", *stages), 1),
        "inference_count": 3,
        "execution_count": 1,
    }
    spent = spent_ns(before["10"], after["10"])
    assert spent["fail"] == spent["cache_hit"] == spent["cache_miss"] == 0
    assert all(spent[stage] > 0 for stage in stages)
    assert sum(spent[stage] for stage in stages) <= spent["success"]


def test_statistics_count_failures(site):
    """A failed request counts only as a failure, with its time."""
    before = statistics(site)
    assert site.infer(b"{", path="/v2/models/m/versions/2/infer").status_code == 400
    after = statistics(site)
    assert grown(before["2"], after["2"]) == {"fail": 1}
    spent = spent_ns(before["2"], after["2"])
    assert spent.pop("fail") > 0
    assert set(spent.values()) == {0}


def test_statistics_of_a_version_a_model_and_all(site):
    """Statistics are those of one version, of a model, or of all models."""
    assert list(statistics(site)) == ["2", "10"]
    assert list(statistics(site, "/v2/models/m/versions/2/stats")) == ["2"]
    everything = site.get("/v2/models/stats").json["model_stats"]
    assert [(each["name"], each["version"]) for each in everything] == [
        ("m", "2"),
        ("m", "10"),
    ]


# The repository.


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": false}', b" "])
def test_repository_index_lists_versions(make_site, body):
    """The index is a list of versions and states; `ready` filters it."""
    m = make_site(start=False)
    write_version(m.folder, "m", 11)
    (m.folder / "m" / "11" / "simulated.json").unlink()
    m.start()
    first, *rest = m.post("/v2/repository/index", body).json
    assert first.pop("reason")
    assert first == {"name": "m", "version": "11", "state": "UNAVAILABLE"}
    assert rest == [
        {"name": "m", "version": "10", "state": "READY", "reason": ""},
        {"name": "m", "version": "2", "state": "READY", "reason": ""},
    ]
    ready = m.post("/v2/repository/index", b'{"ready": true}').json
    assert ready == rest


def test_repository_index_shows_loading_and_unloaded_models(make_site):
    """A loading or unloaded model is in the index with its state."""
    engine = Blocks()
    m = make_site(engine, start=False, versions=(1,), admin_keys=("key",))
    write_version(m.folder, "next", 1)
    m.loader.start()
    engine.wait_until_started()
    index = m.post("/v2/repository/index", headers=KEY)
    assert index.json == [
        {"name": "m", "version": "1", "state": "LOADING", "reason": ""},
        {"name": "next", "state": "LOADING", "reason": "is loading"},
    ]
    engine.unblock()
    assert m.loader.wait(10)
    m.post("/v2/repository/models/m/unload", headers=KEY)
    index = m.post("/v2/repository/index", headers=KEY)
    assert index.json == [
        {"name": "m", "state": "UNAVAILABLE", "reason": "is unloaded"},
        {"name": "next", "version": "1", "state": "READY", "reason": ""},
    ]


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b'{"ready": 1}'])
def test_repository_body_that_is_no_object_is_a_400(site, body):
    """The body of a repository request is an object, or missing."""
    error(site.post("/v2/repository/index", body), 400)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"parameters": null}',
        b'{"parameters": {"unload_dependents": true}}',
    ],
)
def test_unload_and_load_again(make_site, body):
    """An unloaded model is a 503 until it is loaded again."""
    m = make_site(admin_keys=("key",))
    response = m.post("/v2/repository/models/m/unload", body, headers=KEY)
    assert (response.status_code, response.json) == (200, {"name": "m", "unload": True})
    response = m.get("/v2/models/m/ready")
    assert (response.status_code, response.json) == (503, {"name": "m", "ready": False})
    text = error(m.infer(ONE, **KEY), 503)
    assert text == "model 'm': is unloaded"
    response = m.post("/v2/repository/models/m/load", body, headers=KEY)
    assert (response.status_code, response.json) == (200, {"name": "m", "load": True})
    assert m.infer(ONE, **KEY).status_code == 200


def test_failed_load_is_a_500_with_the_reason(make_site):
    """The response to a load that fails has the reason, without a path."""
    m = make_site(admin_keys=("key",))
    write_version(m.folder, "broken", 1)
    (m.folder / "broken" / "1" / "simulated.json").unlink()
    text = error(m.post("/v2/repository/models/broken/load", headers=KEY), 500)
    assert "failed to load 'broken': " in text
    assert str(m.folder) not in text


def test_traffic_moves_to_the_label_that_is_named(make_site, caplog):
    """The next requests follow, and {} brings back what basket.toml says."""
    caplog.set_level(logging.INFO, "app")
    m = make_site(admin_keys=("key",))
    (m.folder / "m" / "basket.toml").write_text("[labels]\nold = 2\nnew = 10\n")
    path = "/v2/repository/models/m/traffic"
    response = m.post(path, b'{"old": 1}', headers=KEY | JSON)
    assert response.json == {"name": "m", "traffic": {"old": 1}}
    assert m.infer(ONE, **KEY).headers["X-Model-Version"] == "2"
    assert "model m: traffic old 1" in caplog.text
    response = m.post(path, b"{}", headers=KEY | JSON)
    assert response.json == {"name": "m", "traffic": {}}
    assert m.infer(ONE, **KEY).headers["X-Model-Version"] == "10"
    assert "traffic as basket.toml says" in caplog.text
    error(m.post(path, b"", headers=KEY | JSON), 400)
    long = json.dumps({"old": [1] * 3000}).encode()
    text = error(m.post(path, long, headers=KEY | JSON), 400)
    assert text.startswith("traffic: old = [1, 1, 1")
    text = error(m.post(path, b'{"nobody": 1}', headers=KEY | JSON), 400)
    assert text == "traffic: nobody: there is no such label in [labels]"


@pytest.mark.parametrize("verb", ["load", "unload", "traffic", "promote"])
def test_load_of_an_unknown_model_is_a_404(keyed_site, verb):
    """A name without a folder is a 404 for whatever changes a model."""
    for name in ("nobody", "..", "m%00", ".hidden"):
        path = f"/v2/repository/models/{name}/{verb}"
        body = b'{"version": 1}' if verb == "promote" else b"{}"
        response = keyed_site.post(path, body, headers=ADMIN | JSON)
        error(response, 404)


@pytest.mark.parametrize("name", ["config", "file:1/model"])
def test_load_with_files_is_a_501(keyed_site, name):
    """A load with a configuration or files in its parameters is a 501."""
    body = {"parameters": {name: "e30="}}
    text = error(
        keyed_site.post("/v2/repository/models/m/load", body, headers=ADMIN), 501
    )
    assert text == f"parameters.{name}: a model is loaded as its folder has it"


@pytest.mark.parametrize(
    "path", ["index", "models/m/load", "models/m/unload"], ids=lambda path: path[-5:]
)
def test_named_repository_is_a_501(site, path):
    """The path of a named repository is a 501, as there is only one."""
    text = error(site.post(f"/v2/repository/mine/{path}"), 501)
    assert "'mine' was given" in text


# Rollouts.


@pytest.fixture(name="rollouts")
def _rollouts(make_site, tmp_path):
    """Serve model m, whose version 2 was proven and whose version 10 was refused."""
    capture_dir = tmp_path / "captured"
    records = Records(capture_dir)
    site = make_site(admin_keys=("key",), capture_dir=capture_dir)
    (site.folder / "m" / "basket.toml").write_text("[promotion]")
    site.records, site.capture_dir = records, capture_dir
    site.contents = {
        number: digest_of(path, fingerprint(path))
        for number in (2, 10)
        for path in [site.folder / "m" / str(number)]
    }
    records.prove("m", 2, site.contents[2])
    records.refuse("m", 10, site.contents[10], "is worse")
    return site


def _decide(site, verb, body, name="m", headers=KEY):
    return site.post(f"/v2/repository/models/{name}/{verb}", body, headers=headers)


def test_refused_version_is_retried_over_http(rollouts):
    """It has to prove itself again; the answer says why it was refused."""
    response = _decide(rollouts, "promote", {"version": "10"})
    assert response.json == {"name": "m", "retried": "10", "was_refused": "is worse"}
    assert rollouts.records.of("m").refused == {}


def test_version_is_forced_over_http(rollouts):
    """Newer versions are refused, which the answer names."""
    body = {"version": 2, "force": True}
    response = _decide(rollouts, "promote", body)
    assert response.json == {"name": "m", "promoted": "2", "refused": ["10"]}
    assert rollouts.records.of("m").forced.version == 2


def test_version_is_sent_back_over_http(rollouts):
    """The reason is in the record, which all processes read."""
    rollouts.records.retry("m", 10)
    response = _decide(rollouts, "send_back", {"version": 10, "reason": "labels"})
    assert response.json == {"name": "m", "sent_back": "10"}
    reason = rollouts.records.of("m").refused[10].reason
    assert reason == "it was sent back by hand: labels"


@pytest.mark.parametrize(
    ("verb", "body", "status", "text"),
    [
        ("promote", {}, 400, "the body.version: expected the number of a version"),
        ("promote", {"version": True}, 400, "given true"),
        ("promote", {"version": 2.0}, 400, "given 2.0"),
        ("promote", {"version": "9" * 30}, 400, "the body.version"),
        ("promote", {"version": 10, "forced": 1}, 400, "not 'forced'"),
        ("promote", {"version": 10, "force": 1}, 400, "the body.force"),
        ("promote", {"version": 2}, 400, "version 2 of 'm' was not refused"),
        ("promote", {"version": 7}, 404, "has no version 7; it has: 2, 10"),
        ("send_back", {"version": 7}, 404, "has no version 7"),
        ("send_back", {"version": 2}, 400, "serves for good"),
        ("send_back", {"version": 10, "reason": "x" * 201}, 400, "at most 200"),
        ("send_back", {"version": 10, "reason": 3}, 400, "the body.reason"),
    ],
)
def test_wrong_decision_changes_nothing(rollouts, verb, body, status, text):
    """The error names what is wrong."""
    before = rollouts.records.of("m")
    assert text in error(_decide(rollouts, verb, body), status)
    assert rollouts.records.of("m") == before


@pytest.mark.parametrize("verb", ["promote", "send_back"])
def test_decision_without_promotion_or_key_is_refused(rollouts, verb):
    """The newest version serves by itself; a stranger decides nothing."""
    error(_decide(rollouts, verb, {"version": 10}, headers={}), 401)
    (rollouts.folder / "m" / "basket.toml").write_text("")
    text = error(_decide(rollouts, verb, {"version": 10}), 400)
    assert "has no [promotion]" in text


def test_decision_that_can_not_be_written_is_a_503(rollouts):
    """Servers would not follow."""
    folder = rollouts.capture_dir / ".promotions"
    folder.rename(folder.with_name("away"))
    folder.touch()
    text = error(_decide(rollouts, "promote", {"version": 2, "force": True}), 503)
    assert "BASKET_CAPTURE_DIR=" in text


# Keys.


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/readyz",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/m/ready",
        "/v2/models/m/versions/2/ready",
    ],
)
def test_health_needs_no_api_key(keyed_site, path):
    """Health is answered without a key, as probes have none."""
    assert keyed_site.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v2/",
        "/v2/models",
        "/v2/models/m",
        "/v2/models/m/config",
        "/v2/models/stats",
        "/v2/models/ready",
        "/v2/models/m/versions/2",
        "/v2/models/m/ready/",
        "/v2/models/a%2Fb/ready",
        "/v2/health",
    ],
)
def test_other_routes_require_an_api_key(keyed_site, path):
    """Any other path without a key is a 401, an unknown one too."""
    error(keyed_site.get(path), 401)
