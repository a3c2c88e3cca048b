"""The Open Inference Protocol over HTTP: every route, status and text."""

import gzip
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient

from app import create_app
from app.api.v2_metadata import VERSION
from app.settings import Settings
from app.telemetry import ModelMetrics
from tests.support.clocks import standing_clock
from tests.support.engines import Blocks, Raises
from tests.support.exchanges import error
from tests.support.tensors import EchoAll, body_of

INPUTS = {"x": ("f4", None, 2), "n": ("i8",), "s": ("O",)}
ONE = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, 1, 2], "data": [1, 2.5]},
        {"name": "n", "datatype": "INT64", "shape": [1], "data": [2**62]},
        {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["é"]},
    ]
}
JSON_SIZE = "Inference-Header-Content-Length"
KEY = {"Authorization": "Bearer key"}
AN_HOUR = 3_600_000_000


class Site:
    """An application whose model m, in versions 2 and 10, runs on `engine`."""

    def __init__(self, folder, engine, **settings):
        self.engine = engine
        self.folder = folder
        self.app = create_app(Settings(model_dir=folder, **settings))
        self.loader = self.app.extensions["basket"]
        self.client = self.app.test_client()

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


@pytest.fixture(name="site")
def _site(tmp_path, monkeypatch):
    """Build a Site, and close it at the end."""
    sites = []

    def make(engine=None, *, start=True, versions=(2, 10), **settings):
        engine = engine or EchoAll(**INPUTS)
        monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
        for version in versions:
            write_version(tmp_path, "m", version)
        labels = "".join(f"v{version} = {version}\n" for version in versions)
        (tmp_path / "m" / "basket.toml").write_text(f"[labels]\n{labels}")
        sites.append(Site(tmp_path, engine, **settings))
        if start:
            sites[-1].start()
        return sites[-1]

    yield make
    for each in sites:
        if isinstance(each.engine, Blocks):
            each.engine.let_go()
        each.loader.close(10)


def write_version(folder, name, version, text="{}"):
    """Write a version that the engine of the fixture opens."""
    place = folder / name / str(version)
    place.mkdir(parents=True)
    (place / "simulated.json").write_text(text)


def tensors(reply):
    """The outputs by name: datatype, shape and data."""
    assert reply.status_code == 200, reply.text
    return {
        each["name"]: (each["datatype"], each["shape"], each.get("data"))
        for each in reply.json["outputs"]
    }


# Infer.


def test_an_answer_in_json(site):
    """A request in JSON is answered in JSON, by the newest version, with its id."""
    reply = site().infer({**ONE, "id": "me"})
    assert reply.content_type == "application/json"
    assert JSON_SIZE not in reply.headers
    assert tensors(reply) == {
        "out_x": ("FP32", [1, 1, 2], [1, 2.5]),
        "out_n": ("INT64", [1], [2**62]),
        "out_s": ("BYTES", [1], ["é"]),
    }
    assert reply.json["id"] == "me"
    assert reply.json["model_name"] == "m"
    assert reply.json["model_version"] == "10"
    assert reply.headers["X-Model-Version"] == "10"
    assert reply.headers["X-Batch-Size"] == "1"


def test_without_an_id_there_is_none(site):
    """An answer has an id only where the request had one, and that may be empty."""
    m = site()
    assert "id" not in m.infer(ONE).json
    assert m.infer({**ONE, "id": ""}).json["id"] == ""


def test_a_version_in_the_path(site):
    """A request that names a version is answered by it."""
    reply = site().infer(ONE, path="/v2/models/m/versions/2/infer")
    assert reply.json["model_version"] == "2"


def test_binary_in_and_out(site):
    """Tensors behind the JSON are answered behind the JSON, whose length is told."""
    arrays = {
        "x": np.array([[[1, 2]], [[3, 4]]], "f4"),
        "n": np.array([5, 6]),
        "s": np.array([b"\xff", b""], object),
    }
    body, size = body_of(arrays, binary=True)
    reply = site().infer(body, size)
    assert reply.content_type == "application/octet-stream"
    answer = InferenceServerClient.parse_response_body(
        reply.data, header_length=int(reply.headers[JSON_SIZE])
    )
    for name, array in arrays.items():
        assert answer.as_numpy(f"out_{name}").tolist() == array.tolist()


def test_binary_out_for_json_in(site):
    """Outputs may be asked for in binary where the inputs are JSON."""
    reply = site().infer({**ONE, "parameters": {"binary_data_output": True}})
    size = int(reply.headers[JSON_SIZE])
    assert json.loads(reply.data[:size])["outputs"][1]["parameters"] == {
        "binary_data_size": 8
    }
    assert len(reply.data) == size + 8 + 8 + 6


def test_a_header_for_a_body_of_json(site):
    """A length that is the whole body is no reason to look behind it."""
    body = json.dumps(ONE).encode()
    assert list(tensors(site().infer(body, len(body)))) == ["out_x", "out_n", "out_s"]


def test_a_raw_body(site):
    """With a length of 0 the body is one row of the input, and the answer binary."""
    m = site(EchoAll(x=("f4", None, 2)))
    values = np.arange(6, dtype="f4")
    reply = m.infer(values.tobytes(), 0)
    assert reply.status_code == 200
    size = int(reply.headers[JSON_SIZE])
    assert json.loads(reply.data[:size])["outputs"][0]["shape"] == [1, 3, 2]
    assert reply.data[size:] == values.tobytes()


def test_a_body_may_be_compressed(site):
    """The length of the JSON is that of the unpacked one."""
    arrays = {"x": np.zeros((2, 2), "f4")}
    body, size = body_of(arrays, binary=True)
    reply = site(EchoAll(x=("f4", 2))).infer(
        gzip.compress(body), size, **{"Content-Encoding": "gzip"}
    )
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json"])
def test_the_content_type_does_not_matter(site, content_type):
    """A body is read as what it is, whatever it says it is."""
    reply = site().post("/v2/models/m/infer", ONE, content_type=content_type)
    assert reply.status_code == 200


@pytest.mark.parametrize("size", ["-1", "1.0", "", "x", "²", "9" * 30, "1 2"])
def test_a_length_that_is_no_number_is_a_400(site, size):
    """A length of the JSON that is not one is a 400 that shows it."""
    text = error(site().infer(ONE, size), 400)
    assert text.startswith(f"{JSON_SIZE}: expected a number of bytes, given")


@pytest.mark.parametrize(
    ("body", "size", "text"),
    [
        (b"", None, "JSON Parse error: The document is empty"),
        (b"{", None, "JSON Parse error"),
        (b"{}", 3, "3 bytes of JSON are announced, and the body has 2"),
        (b"{}", 0, "a body without JSON is one input, and the model takes several"),
        (b"[]", None, "expected a JSON object"),
        (ONE | {"outputs": [{"name": "y"}]}, None, "the model has no output 'y'"),
    ],
)
def test_bad_input_is_a_400(site, body, size, text):
    """A request that the model can't take is a 400 that says why."""
    assert text in error(site().infer(body, size), 400)


def test_what_is_not_built_is_a_501(site):
    """A parameter of Triton's that has no meaning here is a 501."""
    reply = site().infer({**ONE, "parameters": {"sequence_id": 1}})
    assert "keep nothing" in error(reply, 501)


@pytest.mark.parametrize(
    ("limit_ms", "timeout"),
    [
        pytest.param(60_000, 99_000, id="the request's own"),
        pytest.param(99, 60_000_000, id="the shorter one"),
    ],
)
def test_the_timeout_parameter_is_the_deadline(
    site, submitted, monkeypatch, limit_ms, timeout
):
    """Microseconds in a request shorten the server's limit, and lengthen it never."""
    standing_clock(monkeypatch, "app.api.exchange").now = 0.0
    m = site(batch_timeout_micros=AN_HOUR, request_timeout_ms=limit_ms)
    reply = m.infer({**ONE, "parameters": {"timeout": timeout}})
    assert "the request's deadline" in error(reply, 504)
    (job,) = submitted
    assert job.deadline == pytest.approx(0.099)


def test_a_model_that_fails_is_a_500(site):
    """A model that raises is a 500 without its text."""
    m = site(Raises(ValueError("secret")))
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [13]}
    assert error(m.infer({"inputs": [tensor]}), 500) == "the model failed (ValueError)"


def test_inferences_are_counted_and_nothing_else(site):
    """Only infer is in the requests' series; metadata, health and index are not."""
    m = site()
    before = m.get("/metrics").text
    for path in ("", "/health/ready", "/models", "/models/m", "/models/m/config"):
        assert m.get(f"/v2{path}").status_code == 200
    m.post("/v2/repository/index")
    lines = [line for line in before.splitlines() if line.startswith("basket_")]
    assert set(lines) <= set(m.get("/metrics").text.splitlines())
    m.infer(ONE)
    assert not set(lines) <= set(m.get("/metrics").text.splitlines())


# Names and paths.


@pytest.mark.parametrize("verb", ["", "/ready", "/config", "/stats", "/infer"])
@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "nobody", "m%00", "m.", "..%5Cm", "M", "%C3%A9"]
)
def test_a_name_is_only_looked_up(site, verb, name):
    """A name that no model has is a 404, whatever a file system would make of it."""
    m = site()
    ask = m.post if verb == "/infer" else m.get
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
        "/v2/repository/models/..%2F..%2Fetc/load",
        "/v2/repository/models/../load",
        "/v2/nothing",
        "/v3",
    ],
)
def test_a_path_to_nothing_is_a_404(site, path):
    """A slash in a name, and a version that is no number, lead nowhere."""
    reply = site(api_keys=("key",)).post(path, ONE, headers=KEY)
    assert len(error(reply, 404)) < 300


def test_a_wrong_method_is_a_405_in_json(site):
    """A route that is asked in the wrong way says in JSON which ways there are."""
    m = site()
    assert "takes no POST" in error(m.post("/v2"), 405)
    assert "takes no GET" in error(m.get("/v2/models/m/infer"), 405)


# Health.


def test_a_server_lives(site):
    """A server that has loaded nothing lives."""
    assert site(start=False).get("/v2/health/live").json == {"live": True}


def test_ready_means_loaded_and_warm(site):
    """A server and its model are ready only once the model is warm."""
    engine = Blocks()
    m = site(engine, start=False)
    m.loader.start()
    engine.wait_until_started()
    for path, about in (("health", {}), ("models/m", {"name": "m"})):
        reply = m.get(f"/v2/{path}/ready")
        assert reply.status_code == 503
        assert reply.json == {**about, "ready": False}
    for verb in ("", "/config", "/stats"):
        reply = m.get(f"/v2/models/m{verb}")
        assert error(reply, 503) == "model 'm': is loading"
        assert reply.headers["Retry-After"]
    engine.let_go()
    assert m.loader.wait(10)
    assert m.get("/v2/health/ready").json == {"ready": True}
    assert m.get("/v2/models/m/ready").json == {"name": "m", "ready": True}


def test_a_version_is_ready_by_itself(site):
    """Each version tells its own readiness, and one that is not there is a 404."""
    m = site()
    for version in (2, 10):
        reply = m.get(f"/v2/models/m/versions/{version}/ready")
        assert reply.json == {"name": "m", "ready": True}
    reply = m.get("/v2/models/m/versions/3/ready")
    assert error(reply, 404) == "model 'm': version 3 is not served"


def test_a_version_that_failed_is_not_ready(site):
    """A version that can't be loaded is a 503, and the model is ready all the same."""

    def ask(m, version):
        return m.post(f"/v2/models/m/versions/{version}/infer")

    m = site(start=False)
    write_version(m.folder, "m", 11)
    (m.folder / "m" / "11" / "simulated.json").unlink()
    m.start()
    reply = m.get("/v2/models/m/versions/11/ready")
    assert (reply.status_code, reply.json) == (503, {"name": "m", "ready": False})
    assert m.get("/v2/models/m/ready").status_code == 200
    for answer in (m.get("/v2/models/m/versions/11"), ask(m, 11)):
        assert "'m': version 11: " in error(answer, 503)
        assert answer.headers["Retry-After"] == "1"
    assert "version 12 is not served" in error(ask(m, 12), 404)


# Metadata.


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_the_server_says_what_it_is(site, path):
    """Server metadata has a name, the project's version and the extensions."""
    reply = site().get(path)
    assert reply.json == {
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


def test_the_version_is_the_projects():
    """The version that clients see is that of the project."""
    project = Path(__file__).parents[3] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == VERSION


def test_models_are_listed(site):
    """KServe's list of models has their names."""
    assert site().get("/v2/models").json == {"models": ["m"]}


def test_metadata_has_the_batch_first(site):
    """Model metadata shows versions, platform, and tensors with the batch as -1."""
    m = site()
    metadata = m.get("/v2/models/m").json
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
    of_one = m.get("/v2/models/m/versions/2").json
    assert of_one == {**metadata, "versions": ["2"]}
    assert "version 3 is not served" in error(m.get("/v2/models/m/versions/3"), 404)


def test_without_a_version_the_newest_is_shown(site, monkeypatch):
    """Where versions differ, metadata and configuration are those of the newest."""
    engines = {"2": EchoAll(old=("f4",)), "10": EchoAll(new=("f4",))}
    m = site(start=False)
    monkeypatch.setattr(
        "app.engines.simulated.open_engine", lambda file, _: engines[file.parent.name]
    )
    m.start()
    assert m.get("/v2/models/m").json["inputs"][0]["name"] == "new"
    assert m.get("/v2/models/m/config").json["input"][0]["name"] == "new"
    assert m.get("/v2/models/m/versions/2").json["inputs"][0]["name"] == "old"
    old = m.get("/v2/models/m/versions/2/config").json
    assert old["input"][0]["name"] == "old"


def test_the_configuration_is_in_tritons_words(site):
    """The configuration has the largest batch, and tensors without it."""
    reply = site(max_batch_size=16, batch_timeout_micros=500).get("/v2/models/m/config")
    assert reply.json == {
        "name": "m",
        "platform": "echo_all",
        "max_batch_size": 16,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "n", "data_type": "TYPE_INT64", "dims": []},
            {"name": "s", "data_type": "TYPE_STRING", "dims": []},
        ],
        "output": [
            {"name": "out_x", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "out_n", "data_type": "TYPE_INT64", "dims": []},
            {"name": "out_s", "data_type": "TYPE_STRING", "dims": []},
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": 500},
    }


def test_without_batching_the_configuration_has_none(site):
    """With batching off the configuration names no scheduler."""
    config = site(batching=False).get("/v2/models/m/versions/2/config").json
    assert "dynamic_batching" not in config


def test_metadata_of_a_datatype_without_a_name_is_a_501(site):
    """A model whose dtype the protocol does not have says so."""
    reply = site(EchoAll(x=("c8",))).get("/v2/models/m")
    assert "complex64 has no datatype" in error(reply, 501)


# Statistics.


def statistics(m, path="/v2/models/m/stats"):
    """The statistics by version; counts only where `ns` would be a time."""
    (*stats,) = m.get(path).json["model_stats"]
    return {each["version"]: each for each in stats}


def grown(before, after):
    """By how much the counts of one version grew."""
    kinds = after["inference_stats"]
    counts = {
        kind: kinds[kind]["count"] - before["inference_stats"][kind]["count"]
        for kind in kinds
    }
    for kind in ("inference_count", "execution_count"):
        counts[kind] = after[kind] - before[kind]
    return {kind: count for kind, count in counts.items() if count}


def spent_ns(before, after):
    """By how much the times of one version grew."""
    return {
        kind: value["ns"] - before["inference_stats"][kind]["ns"]
        for kind, value in after["inference_stats"].items()
    }


def test_statistics_are_in_nanoseconds_and_tritons_stages(site):
    """Decoding is compute_input, encoding is compute_output, and all are ns."""
    m = site()
    before = statistics(m)["10"]
    seconds = {"decode": 1, "queue": 2, "infer": 3, "encode": 4}
    ModelMetrics("m", "10").request_went_through(seconds)
    spent = spent_ns(before, statistics(m)["10"])
    stages = ("compute_input", "queue", "compute_infer", "compute_output")
    assert [spent[stage] for stage in stages] == pytest.approx([1e9, 2e9, 3e9, 4e9])


def test_statistics_count_rows_batches_and_requests(site):
    """An answer is counted once in each stage, with its rows and its batch."""
    m = site()
    before = statistics(m)
    arrays = {
        "x": np.zeros((3, 1, 2), "f4"),
        "n": np.zeros(3, "i8"),
        "s": np.array([b""] * 3, object),
    }
    body, size = body_of(arrays, binary=True)
    assert m.infer(body, size).status_code == 200
    after = statistics(m)
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
    """A request that fails is counted with its time as a failure, and nowhere else."""
    m = site()
    before = statistics(m)
    assert m.infer(b"{", path="/v2/models/m/versions/2/infer").status_code == 400
    after = statistics(m)
    assert grown(before["2"], after["2"]) == {"fail": 1}
    spent = spent_ns(before["2"], after["2"])
    assert spent.pop("fail") > 0
    assert set(spent.values()) == {0}


def test_statistics_of_a_version_and_of_all(site):
    """Statistics come for one version, for a model, and for all models."""
    m = site()
    assert list(statistics(m)) == ["2", "10"]
    assert list(statistics(m, "/v2/models/m/versions/2/stats")) == ["2"]
    everything = m.get("/v2/models/stats").json["model_stats"]
    assert [(each["name"], each["version"]) for each in everything] == [
        ("m", "2"),
        ("m", "10"),
    ]


# The repository.


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": false}', b" "])
def test_the_index_lists_versions(site, body):
    """The index is a bare list of versions and their states, whether asked or not."""
    m = site(start=False)
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


def test_the_index_shows_what_loads_and_what_is_unloaded(site):
    """A model that loads, or is unloaded, is in the index with its state."""
    engine = Blocks()
    m = site(engine, start=False, versions=(1,), api_keys=("key",))
    write_version(m.folder, "next", 1)
    m.loader.start()
    engine.wait_until_started()
    index = m.post("/v2/repository/index", headers=KEY)
    assert index.json == [
        {"name": "m", "version": "1", "state": "LOADING", "reason": ""},
        {"name": "next", "state": "LOADING", "reason": "is loading"},
    ]
    engine.let_go()
    assert m.loader.wait(10)
    m.post("/v2/repository/models/m/unload", headers=KEY)
    index = m.post("/v2/repository/index", headers=KEY)
    assert index.json == [
        {"name": "m", "state": "UNAVAILABLE", "reason": "is unloaded"},
        {"name": "next", "version": "1", "state": "READY", "reason": ""},
    ]


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b'{"ready": 1}'])
def test_a_body_that_is_no_object_is_a_400(site, body):
    """A body of the repository's calls is an object or nothing."""
    error(site().post("/v2/repository/index", body), 400)


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_without_keys_nobody_loads(site, verb):
    """Where there are no keys, load and unload are off and say what turns them on."""
    m = site()
    text = error(m.post(f"/v2/repository/models/m/{verb}", b"{}"), 403)
    assert "BASKET_API_KEYS" in text
    assert m.infer(ONE).status_code == 200


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_without_the_key_nobody_loads(site, verb):
    """Load and unload want a key like everything else."""
    m = site(api_keys=("key",))
    error(m.post(f"/v2/repository/models/m/{verb}"), 401)
    assert m.get("/v2/models/m/ready").status_code == 200


@pytest.mark.parametrize("body", [b"", b"{}", b'{"parameters": null}'])
def test_unload_and_load_again(site, body):
    """A model that is unloaded answers nothing until it is loaded again."""
    m = site(api_keys=("key",))
    reply = m.post("/v2/repository/models/m/unload", body, headers=KEY)
    assert (reply.status_code, reply.json) == (200, {"name": "m", "unload": True})
    reply = m.get("/v2/models/m/ready")
    assert (reply.status_code, reply.json) == (503, {"name": "m", "ready": False})
    text = error(m.infer(ONE, **KEY), 503)
    assert text == "model 'm': is unloaded"
    reply = m.post("/v2/repository/models/m/load", body, headers=KEY)
    assert (reply.status_code, reply.json) == (200, {"name": "m", "load": True})
    assert m.infer(ONE, **KEY).status_code == 200


def test_a_model_that_can_not_be_loaded_is_a_500_with_the_reason(site):
    """A load that fails answers what is wrong with the model."""
    m = site(api_keys=("key",))
    write_version(m.folder, "broken", 1)
    (m.folder / "broken" / "1" / "simulated.json").unlink()
    text = error(m.post("/v2/repository/models/broken/load", headers=KEY), 500)
    assert "failed to load 'broken': " in text
    assert str(m.folder) not in text


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_a_model_that_is_not_there_is_a_404(site, verb):
    """A name without a folder is not loaded, and leaves no trace."""
    m = site(api_keys=("key",))
    for name in ("nobody", "..", "m%00", ".hidden"):
        reply = m.post(f"/v2/repository/models/{name}/{verb}", headers=KEY)
        error(reply, 404)


@pytest.mark.parametrize("name", ["config", "file:1/model"])
def test_a_load_takes_no_files(site, name):
    """A load that brings its own configuration or files is a 501."""
    m = site(api_keys=("key",))
    body = {"parameters": {name: "e30="}}
    text = error(m.post("/v2/repository/models/m/load", body, headers=KEY), 501)
    assert text == f"parameters.{name}: a model is loaded as its folder has it"


def test_unload_takes_tritons_parameter(site):
    """Triton's unload_dependents is let be, as no model depends on another."""
    body = {"parameters": {"unload_dependents": True}}
    m = site(api_keys=("key",))
    reply = m.post("/v2/repository/models/m/unload", body, headers=KEY)
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "path", ["index", "models/m/load", "models/m/unload"], ids=lambda path: path[-5:]
)
def test_a_named_repository_is_a_501(site, path):
    """There is one repository, and a path that names another is a 501."""
    text = error(site().post(f"/v2/repository/mine/{path}"), 501)
    assert "'mine' was given" in text


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
def test_health_wants_no_key(site, path):
    """Health is answered without a key, as probes have none."""
    assert site(api_keys=("key",)).get(path).status_code == 200


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
def test_all_else_wants_a_key(site, path):
    """Whatever is no health route is a 401 without a key, a path to nothing too."""
    error(site(api_keys=("key",)).get(path), 401)
