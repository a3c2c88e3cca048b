"""Triton's own gRPC client, as it is shipped, against a real server."""

import queue
import shutil
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from testing.clients import in_parallel
from testing.grpc_messages import PREDICT, output_of, request_of
from testing.memory import resident_mib
from testing.server import ROOT, simulated_models
from tests.support.grpc_calls import (
    DTYPES,
    ECHO,
    OWN_CONNECTION,
    echo_inputs,
    failure,
    infer,
    rows,
    serving_grpc,
    tensor,
    triton_client,
    write_echo,
)

ADMIN = {"authorization": "Bearer admin"}
OLD = {**ECHO, "outputs": 1}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, m=OLD, other=ECHO)
    (folder / "m" / "basket.toml").write_text("[labels]\nstable = 1\n")
    simulated_models(folder / "new", m=ECHO)
    (folder / "new" / "m" / "1").rename(folder / "m" / "2")
    (folder / "new" / "m").rmdir()
    (folder / "new").rmdir()
    settings = {"model_dir": models, "admin_keys": "admin", "default_model": "m"}
    with serving_grpc("--threads=4", **settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(running):
    with triton_client(running[1]) as client:
        yield client


def test_client_reads_health(client):
    """Server and models are live and ready, and an unknown model is not ready."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("m")
    assert client.is_model_ready("m", "2")
    assert not client.is_model_ready("m", "9")
    assert not client.is_model_ready("m", "x")
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready("m/config")


def test_client_reads_metadata_and_configuration(client):
    """Metadata and configuration have the values that HTTP has."""
    assert client.get_server_metadata().name == "basket"
    metadata = client.get_model_metadata("other")
    assert metadata.versions == ["1"]
    (given,), (made,) = metadata.inputs, metadata.outputs
    assert (given.name, given.datatype, given.shape) == ("input", "FP32", [-1, 4])
    assert (made.name, made.datatype, made.shape) == ("output", "FP32", [-1, 4])
    config = client.get_model_config("other").config
    assert config.max_batch_size == 64
    assert config.input[0].dims == [4]


def test_client_gets_the_rows_of_its_request(client):
    """Rows come back in order, with the version and the id of the request."""
    result = infer(client, 1, 2, 3, request_id="seven")
    np.testing.assert_array_equal(result.as_numpy("output"), rows(1, 2, 3))
    response = result.get_response()
    assert (response.id, response.model_version) == ("seven", "2")


# FP16 has no typed contents.
TYPED = [name for name in DTYPES if name != "float16"]
CONTENTS = {
    **{"float32": "fp32_contents", "float64": "fp64_contents", "bool": "bool_contents"},
    **dict.fromkeys(("int8", "int16", "int32"), "int_contents"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint_contents"),
    **{"int64": "int64_contents", "uint64": "uint64_contents"},
    "string": "bytes_contents",
}


@pytest.fixture(scope="module")
def echo_address(tf, tmp_path_factory):
    models = tmp_path_factory.mktemp("echoes")
    write_echo(tf, models / "raw")
    write_echo(tf, models / "typed", dtypes=TYPED)
    with serving_grpc(model_dir=str(models), default_model="raw") as (_, address):
        yield address


def _infer_raw(address, arrays):
    """Send arrays with the client, which has them in raw_input_contents."""
    given = [tensor(array, name) for name, array in arrays.items()]
    with triton_client(address) as client:
        return client.infer("raw", given)


def _infer_typed(address, arrays):
    """Send arrays in typed contents, by the client's own messages."""
    request = triton.service_pb2.ModelInferRequest(model_name="typed")
    for name, array in arrays.items():
        datatype = np_to_triton_dtype(array.dtype)
        one = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        getattr(one.contents, CONTENTS[name]).extend(array.ravel().tolist())
    with grpc.insecure_channel(address) as channel:
        stub = triton.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        return triton.InferResult(stub.ModelInfer(request))


@pytest.mark.keras
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("send", "dtypes"), [(_infer_raw, DTYPES), (_infer_typed, TYPED)]
)
def test_every_dtype_comes_back_unchanged(echo_address, send, dtypes):
    """Inputs as bytes and as typed values come back, each in its own dtype."""
    arrays = echo_inputs(dtypes)
    result = send(echo_address, arrays)
    for name, array in arrays.items():
        found = result.as_numpy(f"out_{name}")
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_client_selects_version_and_outputs(client):
    """A version is asked by its number, and outputs by their names."""
    wanted = [triton.InferRequestedOutput("output")]
    result = infer(client, 5, model_version="1", outputs=wanted)
    np.testing.assert_array_equal(result.as_numpy("output"), [[5]])


def test_trailing_metadata_has_version_batch_and_id(running):
    """The trailing metadata of a response has what HTTP has in headers."""
    client = triton.service_pb2_grpc.GRPCInferenceServiceStub(
        grpc.insecure_channel(running[1])
    )
    request = triton.service_pb2.ModelInferRequest(model_name="m")
    request.inputs.add(name="input", datatype="FP32", shape=[1, 4])
    request.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    response, call = client.ModelInfer.with_call(
        request, metadata=[("x-request-id", "mine")]
    )
    assert np.frombuffer(response.raw_output_contents[0], "f4").tolist() == [1, 2, 3, 4]
    trailing = dict(call.trailing_metadata())
    assert trailing["x-request-id"] == "mine"
    assert trailing["x-model-version"] == "2"
    assert trailing["x-batch-size"] == "1"
    assert trailing["server-timing"].startswith("decode;dur=")


BAD = [
    ({"model": "nobody"}, "NOT_FOUND", "no model 'nobody'"),
    ({"model_version": "9"}, "NOT_FOUND", "9"),
    ({"model_version": "x"}, "NOT_FOUND", "no version 'x'"),
    ({"timeout": -1}, "INVALID_ARGUMENT", "parameters.timeout"),
    ({"sequence_id": 7}, "UNIMPLEMENTED", "sequence_id"),
    (
        {"outputs": [triton.InferRequestedOutput("nothing")]},
        "INVALID_ARGUMENT",
        "the model has no output 'nothing', it has: output",
    ),
    (
        {"outputs": [triton.InferRequestedOutput("output", class_count=2)]},
        "UNIMPLEMENTED",
        "classification",
    ),
]


@pytest.mark.parametrize(("options", "code", "text"), BAD)
def test_bad_request_gets_a_code_and_a_text(client, options, code, text):
    """An error names what is wrong, with the code that fits."""
    given_code, given_text = failure(infer, client, 1, **options)
    assert given_code == code
    assert text in given_text


def test_wrong_shape_is_an_invalid_argument(client):
    """The text has the input, the expected shape and the given one."""
    wrong = [tensor(np.zeros((2, 3), np.float32))]
    code, text = failure(client.infer, "m", wrong)
    assert code == "INVALID_ARGUMENT"
    assert text == "input 'input': expected shape [-1, 4], given [2, 3]"


def test_statistics_count_calls(running, client):
    """Triton's statistics count the rows of calls, and /metrics the calls."""
    infer(client, 1, 2, model="other")

    def rows_of():
        (stats,) = client.get_inference_statistics("other").model_stats
        return stats.inference_count

    running[0].wait_until(lambda: rows_of() >= 2, 10)
    series = 'basket_requests_total{model="other",status="200",version="1"}'
    running[0].wait_until(lambda: running[0].metric(series) >= 1, 10)


def test_repository_changes_take_an_admin_key(client):
    """Load and unload change the index for an admin key, and for no other."""
    for key in ({}, {"authorization": "Bearer wrong"}):
        code, text = failure(client.unload_model, "other", headers=key)
        assert code == "UNAUTHENTICATED"
        assert "admin key" in text
    client.unload_model("other", headers=ADMIN)
    assert not client.is_model_ready("other")
    states = {
        each.name: each.state for each in client.get_model_repository_index().models
    }
    assert states == {"m": "READY", "other": "UNAVAILABLE"}
    client.load_model("other", headers=ADMIN)
    assert client.is_model_ready("other")


def test_load_with_files_is_not_supported(client):
    """A model's own files or configuration in a load are refused with a text."""
    code, text = failure(client.load_model, "other", headers=ADMIN, config="{}")
    assert code == "UNIMPLEMENTED"
    assert "as its folder has it" in text


def test_shared_memory_and_traces_are_unimplemented(client):
    """Methods that are not built say what there is in their place."""
    for call in (client.get_system_shared_memory_status, client.get_trace_settings):
        code, text = failure(call)
        assert code == "UNIMPLEMENTED"
        assert text
        assert "Method not found" not in text


def test_error_in_a_stream_has_the_id_of_its_request(running):
    """A client that reads the stream by itself knows which request failed."""
    request = service_pb2.ModelInferRequest(model_name="none", id="7")
    with grpc.insecure_channel(running[1]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        (answer,) = stub.ModelStreamInfer(iter([request]))
    assert "no model 'none'" in answer.error_message
    assert answer.infer_response.id == "7"


@pytest.mark.parametrize("ends", [False, True])
def test_stream_answers_in_order_and_goes_on_after_an_error(running, ends):
    """A stream's messages get one response each, marked as the last, or an error."""
    answers = queue.Queue()
    with triton_client(running[1]) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(20):
            array = rows(number) if number != 7 else np.zeros((1, 9), np.float32)
            client.async_stream_infer(
                "m",
                [tensor(array)],
                request_id=str(number),
                enable_empty_final_response=ends,
            )
        found = [answers.get(timeout=30) for _ in range(20)]
        client.stop_stream()
    for number, (result, error) in enumerate(found):
        if number == 7:
            assert "expected shape [-1, 4], given [1, 9]" in str(error)
        else:
            response = result.get_response()
            assert response.id == str(number)
            assert response.parameters["triton_final_response"].bool_param
            assert result.as_numpy("output")[0, 0] == number


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_64_connections_get_their_own_rows(tmp_path, process):
    """Each of 64 clients, on a connection of its own, gets the answers to its rows."""
    models = simulated_models(tmp_path, m=ECHO)
    workers = "--workers=2" if process == "shared" else "--workers=1"
    options = {"model_dir": models, "model_process": process}
    processes = set()

    def work(place):
        with triton_client(address, channel_args=OWN_CONNECTION) as client:
            for number in range(10):
                first = 100 * place + number
                assert infer(client, first).as_numpy("output")[0, 0] == first
        with grpc.insecure_channel(address, OWN_CONNECTION) as channel:
            sent = request_of(PREDICT, rows(place))
            answer, call = channel.unary_unary(PREDICT).with_call(sent)
            assert output_of(PREDICT, answer)[0, 0] == place
            # The id of a request begins with one of its worker.
            request_id = dict(call.trailing_metadata())["x-request-id"]
            processes.add(request_id.partition("-")[0])

    with serving_grpc(workers, **options) as (_, address):
        in_parallel(work, 64)
    assert len(processes) == (2 if process == "shared" else 1)


def test_web_workers_import_no_tensorflow_for_calls(tmp_path):
    """Beside a model process, workers that have served each kind of call stay small."""
    shutil.copytree(ROOT / "models" / "digits", tmp_path / "digits")
    options = {"model_dir": str(tmp_path), "model_process": "shared"}
    with serving_grpc("--workers=3", **options) as (server, address):
        with triton_client(address) as one:
            (given,) = one.get_model_metadata("digits").inputs
        picture = np.zeros((1, *given.shape[1:]), np.float32)
        for _ in range(20):
            with triton_client(address, channel_args=OWN_CONNECTION) as one:
                one.infer("digits", [tensor(picture, given.name)])
                one.get_model_config("digits")
                one.get_inference_statistics()
            with grpc.insecure_channel(address, OWN_CONNECTION) as channel:
                sent = request_of(PREDICT, picture, "digits", given.name)
                channel.unary_unary(PREDICT)(sent)
        workers = server.workers()
        web = [
            pid
            for pid in workers
            if "libtensorflow" not in Path(f"/proc/{pid}/maps").read_text()
        ]
        assert (len(web), len(workers)) == (3, 4)
        assert max(map(resident_mib, web)) < 110
