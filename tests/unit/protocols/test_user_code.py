"""Requests to models with a service.py."""

import asyncio
import io
import json
import threading

import numpy as np
import pytest

from app import create_app
from app.settings import Settings
from testing.pictures import picture, saved
from testing.server import simulated_models
from tests.support.asgi import Call, on_loop, settle
from tests.support.clocks import OffsetClock
from tests.support.exchanges import error, npy_of, started_client

# `words` has no model file, `rows` and `labels` have one.
SERVICES = {
    "words": """
from app import BadInput
EXAMPLE = "a word"
def preprocess(instance):
    if isinstance(instance, str) and instance == "bad":
        raise BadInput("not this word")
    return instance
def predict(model, batch):
    return [f"{type(each).__name__} {len(each)}" for each in batch]
""",
    "rows": "def preprocess(instance): return [instance['n']] * 3",
    "labels": "def postprocess(row): return {'label': 'ab'[int(row[0])]}",
}
CHANGES = """
def preprocess(instance):
    for number in range(len(instance)):
        instance[number] *= 2
    return instance
def predict(model, batch):
    batch["input"] /= 2
    return model(batch)
def postprocess(row):
    row *= -1
    return row
"""
SIMULATION = {"base_ms": 0, "input_shape": [3], "outputs": 2}


def write(folder, **services):
    simulated_models(folder, rows=SIMULATION, labels=SIMULATION)
    for name, text in services.items():
        version = folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "service.py").write_text(text)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write(folder, **SERVICES)
    with started_client(folder, user_code=True, max_batch_size=4) as client:
        yield client


def ask(client, name, instances, path="/v1/models/{}:predict"):
    return client.post(path.format(name), json={"instances": instances})


@pytest.mark.parametrize("path", ["/v1/models/{}:predict", "/predict?model={}"])
def test_instances_go_through_preprocess(client, path):
    """Any JSON value is an instance, and b64 is bytes."""
    response = ask(client, "words", ["abc", [1, 2], {"b64": "YWI="}], path)
    assert response.json == {"predictions": ["str 3", "list 2", "bytes 2"]}
    response = ask(client, "rows", [{"n": 1}, {"n": 2}], path)
    assert response.json == {"predictions": [[1, 1], [2, 2]]}


def test_long_instances_are_plain_lists(client):
    """Numbers of any count are lists, also where they would stay text."""
    response = ask(client, "words", [[1, 2.5] * 3000, "x" * 5000])
    assert response.json == {"predictions": ["list 6000", "str 5000"]}


def test_outputs_go_through_postprocess(client):
    """Rows are read as those of any other model."""
    response = ask(client, "labels", [[1, 0, 0], [0, 0, 0]])
    assert response.json == {"predictions": [{"label": "b"}, {"label": "a"}]}


def test_files_are_instances(client):
    """A picture as the body, and all files of a form, are bytes."""
    jpeg = saved(picture(), "JPEG")
    response = client.post("/predict?model=words", data=jpeg)
    assert response.json == {"predictions": [f"bytes {len(jpeg)}"]}
    files = [(io.BytesIO(b"1234"), "a.txt"), (io.BytesIO(b"12"), "b.txt")]
    response = client.post("/v1/models/words:predict", data={"file": files})
    assert response.json == {"predictions": ["bytes 4", "bytes 2"]}


def test_rows_of_npy_are_instances(client):
    """Each is an array."""
    response = client.post(
        "/predict?model=words",
        data=npy_of(np.zeros((2, 5))),
        content_type="application/x-npy",
    )
    assert response.json == {"predictions": ["ndarray 5", "ndarray 5"]}


def test_npy_of_a_single_value_is_refused(client):
    """It has no rows."""
    response = client.post(
        "/predict?model=words",
        data=npy_of(np.array(3.0)),
        content_type="application/x-npy",
    )
    assert "a single value, expected rows" in error(response, 400)


def test_functions_may_change_what_they_are_given(tmp_path):
    """Instances, batches and outputs are their own copies."""
    values = {"instances": [[1, 2, 3], [4, 5, 6]]}
    wanted = {"predictions": [[-1, -2], [-4, -5]]}
    path = "/predict?model=rows"
    write(tmp_path, rows=CHANGES)
    with started_client(tmp_path, user_code=True) as client:
        assert client.post(path, json=values).json == wanted
        body = npy_of(np.array(values["instances"], "f4"))
        response = client.post(path, data=body, content_type="application/x-npy")
        assert response.json == wanted


def test_padding_of_a_batch_is_an_object_of_its_own(tmp_path):
    """Predict may change each row that it gets."""
    text = "def predict(model, batch): return [row.pop('x') for row in batch]"
    write(tmp_path, words=text)
    settings = {"user_code": True, "max_batch_size": 4, "allowed_batch_sizes": (4,)}
    with started_client(tmp_path, **settings) as client:
        assert ask(client, "words", [{"x": 1}]).json == {"predictions": [1]}


def test_cloud_event_carries_instances(client):
    """KServe's structured events do as plain bodies."""
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    for data in (
        {"data": {"instances": ["a"]}},
        {"data_base64": "eyJpbnN0YW5jZXMiOiBbImEiXX0="},
    ):
        response = client.post(
            "/v1/models/words:predict",
            data=json.dumps(event | data),
            content_type="application/cloudevents+json",
        )
        assert response.json["data"] == {"predictions": ["str 1"]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "expected a JSON object"),
        ({}, "'instances' must be a list/array with at least one instance"),
        ({"instances": []}, "'instances' must be a list/array"),
        ({"instances": "a"}, "'instances' must be a list/array"),
        ({"inputs": ["a"]}, "this model is asked through its service.py"),
        ({"instances": ["a"], "signature_name": "b"}, "through its service.py"),
        ({"instances": ["a", {"b64": "?"}]}, "instances[1]: not base64"),
        ({"instances": ["a", "bad"]}, "instances[1]: not this word"),
    ],
)
def test_malformed_request_returns_400(client, body, text):
    """The error names the place."""
    response = client.post("/v1/models/words:predict", json=body)
    assert text in error(response, 400)


def test_too_many_instances_return_413(client):
    """The bound is that of rows."""
    assert "1025 rows" not in error(ask(client, "words", ["a"] * 65), 413)


def test_large_json_of_many_values_returns_413(client):
    """Lists of a large body are objects, so their number is bounded."""
    body = b'{"instances": [[%b0]]}' % (b"0," * 600_000)
    response = client.post("/v1/models/words:predict", data=body)
    assert "more than 500000 values" in error(response, 413)


@pytest.mark.parametrize(
    "path",
    ["", "/versions/1", "/config", "/stats", "/ready", "/versions/1/ready"],
)
def test_code_without_tensors_is_not_offered_over_v2(client, path):
    """It is a 404 there, and in no list."""
    response = client.get(f"/v2/models/words{path}")
    assert response.status_code in (404, 503)
    listed = client.post("/v2/repository/index").json
    assert {each["name"] for each in listed} == {"rows", "labels"}
    stats = client.get("/v2/models/stats").json["model_stats"]
    assert {each["name"] for each in stats} == {"rows", "labels"}
    assert client.get("/v2/models").json == {"models": ["labels", "rows"]}


def test_v2_passes_service_by(client):
    """V2 promises the model's own tensors."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    response = client.post("/v2/models/labels/infer", json={"inputs": [tensor]})
    assert response.json["outputs"][0]["data"] == [1, 2]
    response = client.post("/v2/models/words/infer", json={"inputs": [tensor]})
    assert "code without tensors" in error(response, 404)


def test_metadata_shows_objects_as_variants(client):
    """V1's metadata has TensorFlow's word for a value of any kind."""
    found = client.get("/v1/models/words/metadata").json["metadata"]["signature_def"]
    inputs = found["signature_def"]["serving_default"]["inputs"]
    assert inputs["instance"]["dtype"] == "DT_VARIANT"


def test_readyz_shows_the_example(client):
    """Clients need it to build a request."""
    models = client.get("/readyz").json["models"]
    assert models["words"]["example"] == "a word"
    assert models["words"]["inputs"] == []
    assert "example" not in models["rows"]
    assert models["rows"]["inputs"][0]["shape"] == [3]


@on_loop
async def test_preprocess_that_never_returns_is_late(tmp_path):
    """The client gets a 504 at its deadline, and other models answer meanwhile."""
    hung, goes_on = threading.Event(), threading.Event()
    write(tmp_path, words=SERVICES["words"], rows="def preprocess(i): return wait(i)")
    application = create_app(Settings(model_dir=tmp_path, user_code=True))
    loader, catalog = application.loader, application.catalog
    clock = application.loops.clock = OffsetClock()
    loader.start()
    try:
        assert loader.wait(10)
        code = next(m for m in catalog.models() if m.name == "rows").user_code

        def wait(instance):
            hung.set()
            goes_on.wait(30)
            return [instance] * 3

        code.service.preprocess.__globals__["wait"] = wait
        call = Call(application.asgi, b'{"instances": [1]}')
        headers = [(b"content-length", b"18"), (b"x-request-timeout-ms", b"500")]
        task = call.begin("/v1/models/rows:predict", headers=headers)
        await asyncio.to_thread(hung.wait, 10)
        other = Call(application.asgi, b'{"instances": ["a"]}')
        await other.begin(
            "/v1/models/words:predict", headers=[(b"content-length", b"20")]
        )
        assert other.json() == {"predictions": ["str 1"]}
        clock.ahead_s += 1
        asyncio.get_running_loop().fire()
        await settle()
        await task
        assert call.status == 504
        assert call.json() == {"error": "service.py did not return by the deadline"}
    finally:
        goes_on.set()
        loader.close(10)
