"""What is captured of requests in each protocol, and that it can be asked again."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from app import create_app
from app.capture.as_json import bodies
from app.capture.reader import read_captured
from app.capture.recorder import Recorder
from app.recording.recording import sampled
from app.settings import Settings
from app.settings.model_config import CaptureConfig
from testing.payload import CapturedRequests, PayloadError
from testing.pictures import picture, saved
from testing.server import simulated_models
from tests.support.exchanges import npy_of
from tests.support.tensors import EchoAll, body_of

ALL = "[capture]\nshare = 1\n"
IMAGE = '[image]\nsize = [2, 2]\nmode = "L"\nscale = "none"\n'
SERVICES = {
    "words": """
def preprocess(instance):
    if isinstance(instance, dict):
        return str(instance.pop("text"))
    return str(instance)
def predict(model, batch):
    return [{"length": len(each), "score": float("nan")} for each in batch]
""",
    "rows": "def preprocess(instance): return [instance['n']] * 2",
}


class Site:
    """An application with the model m; `groups` stops it, and reads what it wrote."""

    def __init__(self, folder, engine, monkeypatch, config="", **settings):
        models = folder / "models"
        simulation = {"base_ms": 0, "input_shape": [2], "outputs": 2}
        simulated_models(models, m=simulation, quiet=simulation)
        (models / "m" / "basket.toml").write_text(ALL + config)
        for name, text in SERVICES.items():
            (models / name / "1").mkdir(parents=True)
            (models / name / "1" / "service.py").write_text(text)
            (models / name / "basket.toml").write_text(ALL)
        device = {"base_ms": 0, "input_shape": [2], "outputs": 1}
        (models / "rows" / "1" / "simulated.json").write_text(json.dumps(device))
        self.captured = folder / "captured"
        settings = Settings(
            model_dir=models,
            capture_dir=self.captured,
            default_model="m",
            user_code=True,
            **settings,
        )
        if engine is not None:
            monkeypatch.setattr("app.engines.simulated.open_engine", lambda *_: engine)
        self.app = create_app(settings)
        self.loader = self.app.loader
        self.client = self.app.flask.test_client()

    def post(self, path, **request):
        reply = self.client.post(path, **request)
        assert reply.status_code == 200, reply.text
        return reply

    def groups(self, model="m"):
        self.app.recording.close(10)
        return read_captured(self.captured / model).groups


@pytest.fixture(name="start")
def _start(tmp_path, monkeypatch):
    sites = []

    def start(engine=None, config="", **settings):
        sites.append(Site(tmp_path, engine, monkeypatch, config, **settings))
        sites[-1].loader.start()
        assert sites[-1].loader.wait(10)
        return sites[-1]

    yield start
    for site in sites:
        site.loader.close(10)


def test_each_protocol_captures_the_same_arrays(start):
    """JSON rows and columns, NumPy files, V2 in JSON and binary are one group."""
    site = start(EchoAll(x=("f4", 2)))
    rows = np.float32([[1, 2], [3, 4]])
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": rows.tolist()}]
    binary, size = body_of({"x": rows}, binary=True)
    for path, request in (
        ("/predict", {"json": {"instances": rows.tolist()}}),
        ("/v1/models/m:predict", {"json": {"inputs": rows.tolist()}}),
        ("/predict", {"data": npy_of(rows), "content_type": "application/x-npy"}),
        ("/v2/models/m/infer", {"json": {"inputs": inputs}}),
        (
            "/v2/models/m/infer",
            {"data": binary, "headers": {"Inference-Header-Content-Length": str(size)}},
        ),
    ):
        site.post(path, **request)
    (group,) = site.groups()
    assert len(group) == 5
    assert group.inputs["x"].tolist() == group.outputs["out_x"].tolist()
    assert group.inputs["x"].tolist() == rows.tolist() * 5
    assert group.columns["rows"].tolist() == [2] * 5


def test_pictures_are_captured_as_pixels(start):
    """What the model gets, not the file."""
    site = start(EchoAll(x=("f4", 2, 2, 1)), IMAGE)
    site.post("/predict", data=saved(picture("L", 2, 2, 1), "PNG"))
    (group,) = site.groups()
    assert group.inputs["x"].shape == (1, 2, 2, 1)


def test_strings_are_captured(start):
    """Bytes that are no text, too."""
    site = start(EchoAll(s=("O",)))
    site.post("/predict", json={"instances": ["é", {"b64": "/wA="}]})
    (group,) = site.groups()
    assert group.inputs["s"].tolist() == ["é".encode(), b"\xff\0"]
    assert group.outputs["out_s"].tolist() == group.inputs["s"].tolist()


def test_rows_of_unlike_shapes_are_captured_by_shape(start):
    """Each group has the outputs of its own rows, with the request's id."""
    site = start(EchoAll(x=("f4", None), s=("O",)))
    rows = [{"x": [1] * size, "s": f"row {size}"} for size in (1, 2, 1, 3)]
    headers = {"X-Request-Id": "mixed"}
    site.post("/predict", json={"instances": rows}, headers=headers)
    groups = site.groups()
    assert [each.inputs["x"].shape for each in groups] == [(2, 1), (1, 2), (1, 3)]
    assert groups[0].outputs["out_s"].tolist() == [b"row 1"] * 2
    for each in groups:
        assert each.outputs["out_x"].tolist() == each.inputs["x"].tolist()
        assert each.columns["request_id"].tolist() == [b"mixed"]


def test_whole_tensors_are_marked(start):
    """A tensor of a model that knows no rows is asked again as it was."""
    engine = EchoAll(x=("f4", None))
    (name,) = engine.signatures
    engine.signatures[name] = replace(
        engine.signatures[name], takes_whole_tensors=True, limit_reason="a test"
    )
    site = start(engine)
    site.post("/predict", json={"inputs": [1, 2, 3]})
    (group,) = site.groups()
    assert (group.form, group.inputs["x"].tolist()) == ("whole", [[1, 2, 3]])
    (body,) = map(json.loads, bodies(group))
    assert body["inputs"] == {"x": [1, 2, 3]}


def test_instances_of_a_model_without_tensors_are_json(start):
    """As they were before preprocess, which changes them."""
    site = start()
    instances = [{"text": "abc"}, 12, {"b64": "/wA="}]
    site.post("/predict?model=words", json={"instances": instances})
    (group,) = site.groups("words")
    assert group.form == "json"
    assert [json.loads(each) for each in group.inputs["json"]] == instances
    texts = [each.decode() for each in group.outputs["json"]]
    assert [json.loads(text)["length"] for text in texts] == [3, 2, 11]
    (body,) = bodies(group)
    again = site.post("/predict?model=words", data=body)
    assert [each["length"] for each in json.loads(again.text)["predictions"]] == [
        *(3, 2, 11)
    ]


def test_instances_of_a_cloud_event_are_json(start):
    """The event around the predictions is not captured."""
    site = start()
    event = {"specversion": "1.0", "id": "1", "source": "here", "type": "ask"}
    site.post(
        "/v1/models/words:predict",
        json={**event, "data": {"instances": ["ab"]}},
        content_type="application/cloudevents+json",
    )
    (group,) = site.groups("words")
    assert json.loads(group.outputs["json"][0])["length"] == 2


def test_model_file_with_a_service_is_captured_behind_preprocess(start):
    """The rows that the model got are tensors."""
    site = start()
    site.post("/predict?model=rows", json={"instances": [{"n": 5}]})
    (group,) = site.groups("rows")
    assert group.inputs["input"].tolist() == [[5, 5]]


def test_only_answered_requests_are_captured(start):
    """An error leaves nothing."""
    site = start()
    assert site.client.post("/predict", json={"instances": [[1]]}).status_code == 400
    site.post("/predict", json={"instances": [[1, 2]]})
    assert sum(map(len, site.groups())) == 1


def test_captured_outputs_do_not_keep_a_batch_in_memory(start, monkeypatch):
    """They are copies, not views of the outputs of all requests."""
    kept = []
    site = start()
    monkeypatch.setattr(Recorder, "record", lambda _, sample: kept.append(sample))
    site.post("/predict", json={"instances": [[1, 2]]})
    request = kept[0].request
    assert request.outputs["output"].base is None
    assert kept[0].size >= request.inputs["input"].nbytes


def test_captured_requests_can_be_sent_again(start):
    """The bodies of a load test are answered as the clients' were."""
    site = start(EchoAll(x=("f4", None, 2), s=("O",), n=("i8",)))
    row = {"x": [[0.1, float("nan")]], "s": {"b64": "/wA="}, "n": 2**60}
    answer = site.post("/predict", data=json.dumps({"instances": [row, row]}))
    assert len(site.groups()) == 1
    body = CapturedRequests(site.captured / "m").body()
    found = json.loads(site.post("/predict", data=body).text)["outputs"]
    for number, each in enumerate(json.loads(answer.text)["predictions"]):
        values = {name: value[number] for name, value in found.items()}
        assert json.dumps(values) == json.dumps(each)


def test_load_test_without_captured_requests_is_an_error(tmp_path):
    """The text names the path."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(PayloadError, match=str(path)):
            CapturedRequests(path)


def test_share_of_requests_is_sampled():
    """A tenth is captured."""
    chance, tenth = random.Random(7), CaptureConfig(0.1)
    found = [sampled(tenth, chance) for _ in range(10_000)]
    assert 900 < found.count(tenth) < 1100
    assert found.count(None) == 10_000 - found.count(tenth)


def test_model_without_capture_is_not_captured(start):
    """Nothing is kept of a model whose basket.toml has no [capture]."""
    site = start()
    site.post("/predict?model=quiet", json={"instances": [[1, 2]]})
    site.post("/predict", json={"instances": [[1, 2]]})
    assert len(site.groups()) == 1
    assert not (site.captured / "quiet").exists()


@pytest.mark.parametrize(("share", "least", "most"), [(0.2, 130, 270), (0.0, 0, 0)])
def test_share_of_requests_is_in_the_request_log(start, tmp_path, share, least, most):
    """Of 1000 requests about a fifth, each with its own id, or none."""
    file = tmp_path / "requests"
    site = start(request_log=str(file), request_log_share=share)
    for number in range(1000):
        headers = {"X-Request-Id": f"id-{number}"}
        site.post("/predict", json={"instances": [[1, 2]]}, headers=headers)
    site.groups()
    lines = file.read_text().splitlines() if file.exists() else []
    assert least <= len(lines) <= most
    assert len({json.loads(each)["request_id"] for each in lines}) == len(lines)
