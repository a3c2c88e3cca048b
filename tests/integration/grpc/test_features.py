"""Predict and ModelInfer beside HTTP: each feature treats the three of them alike."""

import contextlib
import json
import queue
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton

from app.capture.reader import read_captured
from testing.server import metric_sum, simulated_models, wait_until
from tests.support.grpc_calls import (
    ECHO,
    OWN_CONNECTION,
    SLOW,
    WIDTH,
    failure,
    rows,
    serving_grpc,
    tensor,
    triton_client,
)
from tests.support.user_code import add_service

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras use deprecated functions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Protobuf gencode version:UserWarning"),
]
WITHIN_S = 20
CLIENTS = 24
MOST_CALLS = 4
MANY = 16
SPAN = "b7ad6b7169203331"
SPLIT = "[labels]\na = 1\nb = 2\n[traffic]\na = 50\nb = 50\n"
ONLY_CODE = "def predict(model, batch):\n    return [2 * each for each in batch]\n"
PREPROCESS = f"""
import numpy as np


def preprocess(instance):
    return np.full({WIDTH}, instance + 100, np.float32)
"""
# A batch of one row each of Predict, ModelInfer and HTTP; it waits for all three.
OF_THREE = {"max_batch_size": "3", "batch_timeout_micros": "20000000"}
WAYS = ("predict", "infer", "http")
STAGES = ["decode", "encode", "infer", "queue"]


class Caller:
    """Sends rows by Predict, by ModelInfer and over HTTP.

    Each method returns the first value of each row, and headers or trailing metadata.
    """

    def __init__(self, tf, server, address):
        from tensorflow_serving.apis import (  # noqa: PLC0415
            predict_pb2,
            prediction_service_pb2_grpc,
        )

        self._tf, self._server, self.address = tf, server, address
        self._request = predict_pb2.PredictRequest
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub

    def predict(self, *firsts, model="m", **headers):
        request = self._request()
        request.model_spec.name = model
        proto = self._tf.make_tensor_proto(rows(*firsts))
        request.inputs["input"].CopyFrom(proto)
        with self._channel() as channel:
            call = self._stub(channel).Predict.with_call
            response, ended = call(request, metadata=_metadata(headers))
        found = self._tf.make_ndarray(response.outputs["output"])
        return found[:, 0].tolist(), dict(ended.trailing_metadata())

    def infer(self, *firsts, model="m", **headers):
        request = triton.service_pb2.ModelInferRequest(model_name=model)
        shape = [len(firsts), WIDTH]
        request.inputs.add(name="input", datatype="FP32", shape=shape)
        request.raw_input_contents.append(rows(*firsts).tobytes())
        with self._channel() as channel:
            stub = triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)
            response, ended = stub.ModelInfer.with_call(
                request, metadata=_metadata(headers)
            )
        found = np.frombuffer(response.raw_output_contents[0], np.float32)
        return found.reshape(shape)[:, 0].tolist(), dict(ended.trailing_metadata())

    def http(self, *firsts, **headers):
        reply = self._server.predict(rows(*firsts).tolist(), dict(_metadata(headers)))
        assert reply.status == 200, reply.body
        return [row[0] for row in reply.json()["predictions"]], reply.headers

    def _channel(self):
        """Open a connection of its own: the kernel gives it to one of the workers."""
        return grpc.insecure_channel(self.address, OWN_CONNECTION)


def _metadata(headers):
    """Return keywords as metadata: x_client_id is x-client-id."""
    return [(name.replace("_", "-"), value) for name, value in headers.items()]


@pytest.fixture(name="models")
def _models(tmp_path):
    simulated_models(tmp_path / "models", m=ECHO)
    return tmp_path / "models"


@contextlib.contextmanager
def _calling(tf, models, *args, **settings):
    settings = {"model_dir": str(models), "default_model": "m", **settings}
    with serving_grpc("--threads=4", *args, **settings) as (server, address):
        yield server, Caller(tf, server, address)


@pytest.fixture(name="calling")
def _calling_models(tf, models):
    """Return a function that runs a server of `models`; it yields it and a Caller."""
    return partial(_calling, tf, models)


@pytest.fixture(name="picky", scope="module")
def _picky(tf, tmp_path_factory):
    """Who calls a server whose model raises for a batch with a negative row."""
    models = tmp_path_factory.mktemp("models")
    _write_picky(tf, models / "m" / "1")
    with _calling(tf, models, **OF_THREE) as (_, caller):
        yield caller


def _captured(folder):
    """Return the values and the outputs of each captured request, by its id."""
    found = {}
    for group in read_captured(folder).groups:
        ids = [each.decode() for each in group.columns["request_id"].tolist()]
        for each, place in zip(ids, group.slices(), strict=True):
            assert each not in found
            tensors = group.inputs["input"][place], group.outputs["output"][place]
            found[each] = [array[:, 0].tolist() for array in tensors]
    return found


def test_calls_are_captured_as_requests_are(calling, models):
    """The ring has the rows of each answered request, whatever its protocol."""
    (models / "m" / "basket.toml").write_text("[capture]\nshare = 1.0\n")
    folder, expected = models.parent / "captured", {}
    settings = {"model_process": "shared", "capture_dir": str(folder)}
    with calling("--workers=2", **settings) as (_, caller):
        for number in range(8):
            for way in WAYS:
                name, firsts = f"{way}-{number}", [float(number), 7.0][: 1 + number % 2]
                getattr(caller, way)(*firsts, x_request_id=name)
                expected[name] = [firsts, firsts]
        for way in (caller.predict, caller.infer):
            late = {"x_request_timeout_ms": "0.001", "x_request_id": "late"}
            failure(way, 1, **late)
    assert _captured(folder / "m") == expected


def test_a_client_has_one_version_whatever_its_protocol(calling, models):
    """A split takes x-client-id of metadata as it takes the header."""
    other = models.parent / "other"
    simulated_models(other, m=ECHO)
    (other / "m" / "1").rename(models / "m" / "2")
    (models / "m" / "basket.toml").write_text(SPLIT)
    with calling() as (server, caller):
        server.wait_until(lambda: server.loaded() == 2, WITHIN_S)
        of_client = {
            name: [
                getattr(caller, way)(1, x_client_id=name)[1]["x-model-version"]
                for way in (*WAYS, *WAYS)
            ]
            for name in map(str, range(CLIENTS))
        }
    assert all(len(set(found)) == 1 for found in of_client.values()), of_client
    assert {found[0] for found in of_client.values()} == {"1", "2"}


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_the_three_share_batches_and_their_spans_are_links(calling, process):
    """Rows of Predict, ModelInfer and HTTP run as one batch, in traces of their own."""
    pytest.importorskip("opentelemetry.proto", reason="needs requirements/otel.txt")
    from tests.support.otlp import collecting  # noqa: PLC0415

    workers = "--workers=2" if process == "shared" else "--workers=1"
    traces = {way: f"{number:032x}" for number, way in enumerate(WAYS, 1)}
    with collecting() as collector, ThreadPoolExecutor(3) as threads:
        options = {"model_process": process, "environ": collector.environ, **OF_THREE}
        with calling(workers, **options) as (_, caller):
            for number in range(6):
                flag = "01" if number == 5 else "00"
                parents = {way: f"00-{traces[way]}-{SPAN}-{flag}" for way in WAYS}
                asked = {
                    way: threads.submit(getattr(caller, way), number, traceparent=each)
                    for way, each in parents.items()
                }
                for each in asked.values():
                    values, trailing = each.result()
                    assert (values, trailing["x-batch-size"]) == ([number], "3")
        (batch,) = collector.wait_for("batch")
        spans = collector.wait_for("POST", 3)
    # Those of parents that are not sampled are not there.
    assert {each.trace_id for each in spans} == set(traces.values())
    assert len(spans) == 3
    assert sorted(batch.links) == sorted((s.trace_id, s.span_id) for s in spans)
    for span in spans:
        assert (span.parent_id, span.error) == (SPAN, None)
        assert span.attributes["basket.batch_rows"] == 3
        assert sorted(collector.children_of(span)) == STAGES


@pytest.mark.parametrize("bad", ["predict", "infer"])
def test_bad_row_of_a_call_fails_alone_in_its_batch(picky, bad):
    """Of a batch of the three, the call whose row the model refuses fails alone."""
    with ThreadPoolExecutor(3) as threads:
        good = [getattr(picky, way) for way in WAYS if way != bad]
        answers = [threads.submit(way, 4) for way in good]
        code, text = failure(getattr(picky, bad), -1)
        assert (code, "a negative row" in text) == ("INVALID_ARGUMENT", True)
        assert [each.result()[0] for each in answers] == [[4], [4]]


def _write_picky(tf, folder):
    """Write a SavedModel that echoes rows, and raises for a batch with a negative."""

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "input")])
    def echo(given):
        is_valid = tf.debugging.assert_non_negative(given, "a negative row")
        with tf.control_dependencies([is_valid]):
            return {"output": tf.identity(given)}

    tf.saved_model.save(tf.Module(), str(folder), signatures=echo)


def test_clients_take_turns_whatever_their_protocol(calling, models):
    """Of a client's many queued calls none delays another client by more than one."""
    (models / "m" / "1" / "simulated.json").write_text(json.dumps(SLOW))
    # The longest queue, in rows of one batch each.
    limits = {"max_batch_size": "1", "max_enqueued_batches": "64"}
    ends = []
    with (
        ThreadPoolExecutor(MANY + 1) as threads,
        calling(**limits) as (server, caller),
    ):

        def ask(way, name):
            getattr(caller, way)(1, x_client_id=name)
            ends.append(name)

        many = [threads.submit(ask, "infer", "many") for _ in range(MANY)]
        wait_until(lambda: metric_sum(server, "basket_queue_rows") >= MANY - 2, 20)
        done = len(ends)
        for way in ("http", "predict"):
            ask(way, way)
        for each in many:
            each.result()
    # One call runs, and one has its turn, when a client's first row comes.
    assert ends.index("http") - done <= 3
    assert ends.index("predict") - ends.index("http") <= 4


def test_code_is_passed_by_and_needs_a_model_beside_it(calling, models):
    """Calls of a version without a model file get the text of V2 over HTTP."""
    add_service(models, "code", ONLY_CODE)
    add_service(models, "both", PREPROCESS, simulated=ECHO)
    with calling(user_code="on") as (server, caller):
        for model, made in (("code", 8), ("both", [104.0] * WIDTH)):
            path, body = f"/v1/models/{model}:predict", b'{"instances": [4]}'
            assert server.request("POST", path, body).json() == {"predictions": [made]}
        refused = server.request("POST", "/v2/models/code/infer", b'{"inputs": []}')
        text = refused.json()["error"]
        assert (refused.status, "code without tensors" in text) == (404, True)
        for way in (caller.infer, caller.predict):
            assert failure(way, 1, model="code") == ("NOT_FOUND", text)
            assert way(4, 5, model="both")[0] == [4, 5]


def test_calls_above_worker_connections_are_refused_at_once(calling):
    """Open streams are calls: HTTP and they are answered, and one that ends frees."""
    with (
        calling(f"--worker-connections={MOST_CALLS}") as (_, caller),
        contextlib.ExitStack() as stack,
    ):
        answers, streams = queue.Queue(), []
        row = [tensor(rows(6))]
        for _ in range(MOST_CALLS):
            one = stack.enter_context(triton_client(caller.address))
            one.start_stream(lambda result, error: answers.put(error or result))
            one.async_stream_infer("m", row)
            assert answers.get(timeout=WITHIN_S).as_numpy("output")[0, 0] == 6
            streams.append(one)
        for way in (caller.predict, caller.infer):
            code, text = failure(way, 1)
            assert (code, "limit exceeded" in text) == ("RESOURCE_EXHAUSTED", True)
        assert caller.http(2)[0] == [2]
        for each in streams:
            each.async_stream_infer("m", row)
            assert answers.get(timeout=WITHIN_S).as_numpy("output")[0, 0] == 6
        streams[0].stop_stream()

        def is_answered():
            with contextlib.suppress(grpc.RpcError):
                return caller.infer(5)[0] == [5]
            return False

        wait_until(is_answered, WITHIN_S)
