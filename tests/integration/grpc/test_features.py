"""gRPC calls and what HTTP requests have: capture, splits, traces, limits, batches."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from app.capture.reader import read_captured
from testing.server import metric_sum, simulated_models
from tests.support.grpc_calls import (
    ECHO,
    SLOW,
    failure,
    infer,
    serving_grpc,
    triton_client,
)
from tests.support.user_code import add_service

WITHIN_S = 20
CLIENTS = 24
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LABELS = "[labels]\nstable = 1\ncanary = 2\n"
SPLIT = LABELS + "[traffic]\nstable = 50\ncanary = 50\n"
TEXT = """
def load(folder):
    return str.upper


def predict(model, batch):
    return [model(text) for text in batch]
"""


@pytest.fixture(name="models")
def _models(tmp_path):
    simulated_models(tmp_path / "models", m=ECHO)
    return tmp_path / "models"


def _configure(models, text):
    (models / "m" / "basket.toml").write_text(text)


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_calls_are_captured_and_logged(models, process):
    """Rows, answer and id are in the files that HTTP requests have."""
    _configure(models, "[capture]\nshare = 1.0\n")
    folder, log = models.parent / "captured", models.parent / "log"
    settings = {"capture_dir": str(folder), "request_log": str(log)}
    settings |= {"model_dir": str(models), "model_process": process}
    with serving_grpc(**settings) as (_, address), triton_client(address) as one:
        for number in range(1, 6):
            infer(one, number, headers={"x-request-id": f"call-{number}"})
    (group,) = read_captured(folder / "m").groups
    assert group.inputs["input"][:, 0].tolist() == [1, 2, 3, 4, 5]
    assert group.outputs["output"].tolist() == group.inputs["input"].tolist()
    ids = [f"call-{number}" for number in range(1, 6)]
    assert [each.decode() for each in group.columns["request_id"].tolist()] == ids
    assert all(each in log.read_text() for each in ids)


def _version(client, name):
    """Return the version that answers a client's call."""
    result = infer(client, 1, headers={"x-client-id": name})
    return result.get_response().model_version


def test_traffic_split_keeps_each_client_on_its_side(models):
    """Both versions get clients, and each client one version."""
    simulated_models(models.parent / "other", m=ECHO)
    (models.parent / "other" / "m" / "1").rename(models / "m" / "2")
    _configure(models, SPLIT)
    with serving_grpc(model_dir=str(models)) as (server, address):
        server.wait_until(lambda: server.loaded() == 2, WITHIN_S)
        with triton_client(address) as one:
            sides = {
                name: {_version(one, name) for _ in range(4)}
                for name in map(str, range(CLIENTS))
            }
    assert all(len(versions) == 1 for versions in sides.values())
    assert Counter(min(each) for each in sides.values()).keys() == {"1", "2"}


def test_call_has_a_span_in_its_clients_trace(models):
    """The stages of a call are children of its span, as those of a request are."""
    pytest.importorskip("opentelemetry.proto", reason="needs requirements/otel.txt")
    from tests.support.otlp import collecting  # noqa: PLC0415

    parent = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    with collecting() as collector:
        options = {"model_dir": str(models), "environ": collector.environ}
        with serving_grpc(**options) as (_, address), triton_client(address) as one:
            infer(one, 1, headers=parent)
            (call,) = collector.wait_for("POST /inference")
        assert (call.trace_id, call.parent_id) == (TRACE, SPAN)
        assert sorted(collector.children_of(call)) == [
            *("decode", "encode", "infer", "queue"),
        ]


def test_version_without_tensors_is_not_found(tmp_path):
    """A service.py in place of a model has no tensors, and the server answers on."""
    simulated_models(tmp_path, m=ECHO)
    add_service(tmp_path, "text", TEXT)
    options = {"model_dir": str(tmp_path), "user_code": "on", "default_model": "m"}
    with serving_grpc(**options) as (server, address), triton_client(address) as one:
        reply = server.request(
            "POST", "/v1/models/text:predict", b'{"instances":["a"]}'
        )
        assert reply.json() == {"predictions": ["A"]}
        code, text = failure(infer, one, 1, model="text")
        assert (code, "service.py" in text) == ("NOT_FOUND", True)
        assert infer(one, 7).as_numpy("output")[0, 0] == 7


def test_calls_beyond_worker_connections_are_refused(tmp_path):
    """They get an answer at once, and those before them theirs."""
    models = simulated_models(tmp_path / "models", m=SLOW)
    args = "--worker-connections=4", "--threads=2"
    with (
        serving_grpc(*args, model_dir=models) as (_, address),
        triton_client(address) as one,
        ThreadPoolExecutor(12) as threads,
    ):

        def ask(number):
            try:
                return infer(one, number).as_numpy("output")[0, 0]
            except InferenceServerException as error:
                return error.status()

        found = Counter(map(str, threads.map(ask, range(12))))
    refused = found.pop("StatusCode.RESOURCE_EXHAUSTED")
    assert refused + len(found) == 12
    assert 4 <= len(found) < 12


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_calls_and_requests_share_batches(tmp_path, process):
    """While a batch runs, both kinds wait in one queue, and run as the next batch."""
    models = simulated_models(tmp_path / "models", m=SLOW)
    workers = "--workers=2" if process == "shared" else "--workers=1"
    options = {"model_dir": models, "model_process": process}
    with (
        serving_grpc(workers, **options) as (server, address),
        ThreadPoolExecutor(CLIENTS) as threads,
        triton_client(address) as one,
    ):

        def ask(number):
            if number % 2:
                return server.predict([[number] * 4]).json()["predictions"][0][0]
            return infer(one, number).as_numpy("output")[0, 0]

        found = list(threads.map(ask, range(CLIENTS)))
        batches = metric_sum(server, "basket_batch_rows_count")
    assert found == list(range(CLIENTS))
    assert batches < CLIENTS / 4
