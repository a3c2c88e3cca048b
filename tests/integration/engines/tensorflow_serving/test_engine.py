"""The engine for TensorFlow Serving, against a scripted model server."""

import contextlib
import json
import threading
import time
from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.codec import rows
from app.engines import open_engine
from app.engines.base import Signature, TensorSpec
from app.engines.tensorflow_serving import connections, wire
from app.engines.tensorflow_serving.engine import RemoteModel
from app.errors import (
    Late,
    ModelFailed,
    ModelLoadError,
    OutOfDeviceMemory,
    RefusedInput,
    Unavailable,
    WrongOutputs,
)
from app.settings import Settings
from testing.clients import in_parallel
from tests.support.model_server import ModelServer, Response, metadata, tensor

PATIENCE_S = 10
DTYPES = {
    "DT_BOOL": "bool",
    "DT_HALF": "float16",
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_STRING": "object",
    "DT_INT8": "int8",
    "DT_INT16": "int16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_UINT8": "uint8",
    "DT_UINT16": "uint16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
}
DOUBLES = metadata(
    serving_default=({"x": tensor("DT_FLOAT", -1)}, {"y": tensor("DT_FLOAT", -1)})
)


def doubles(request):
    """Respond as a model that doubles."""
    if request.path.endswith("/metadata"):
        return DOUBLES
    return Response.value({"outputs": [2 * x for x in request.json()["inputs"]["x"]]})


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://[::1]", ("::1", 80)),
        ("https://[::1]", ("::1", 443)),
        ("http://[::1]:8501", ("::1", 8501)),
    ],
)
def test_port_of_a_url_without_one_is_its_schemes(monkeypatch, url, address):
    """The last group of an IPv6 address is no port."""
    asked = []

    def refuse(address, *_):
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(Unavailable):
        connections.Connections(urlsplit(url), 1).exchange("GET", "/")
    assert asked == [address]


def responding(response):
    """Respond to every batch with `response`, and serve the metadata of `doubles`."""
    return lambda request: DOUBLES if request.path.endswith("/metadata") else response


def open_remote(folder, server, **values):
    """Open the model `m` of a server, with more values for the file."""
    (folder / "tensorflow_serving.json").write_text(
        json.dumps({"url": server.url, "model": "m", **values})
    )
    return open_engine(folder, Settings())


@pytest.fixture
def opened(tmp_path):
    """Run a server and open its model `m`; close both after the test."""
    with contextlib.ExitStack() as stack:

        def open_(response, **values):
            server = stack.enter_context(ModelServer(response).running())
            engine = open_remote(tmp_path, server, **values)
            # Twice, as an engine may be closed.
            stack.callback(engine.close)
            stack.callback(engine.close)
            return engine, server

        yield open_


def batch(*values):
    return {"x": np.array(values, np.float32)}


def test_batch_is_sent_in_columns(opened):
    """One request holds the batch and the signature's name; the output is an array."""
    engine, server = opened(doubles)
    outputs = engine.run(batch(1, 0.2))
    assert outputs["y"].dtype == np.float32
    assert outputs["y"].tolist() == [2, np.float32(0.4)]
    (request,) = server.requests_to(":predict")
    assert (request.method, request.path) == ("POST", "/v1/models/m:predict")
    assert request.json() == {
        "signature_name": "serving_default",
        "inputs": {"x": [1.0, 0.2]},
    }
    assert engine.platform == "tensorflow_serving"


def test_model_name_is_quoted_in_the_path():
    """A name of any characters is one path segment, behind the URL's own path."""
    text = b'{"url": "https://gate:99/tfs/", "model": "a/b c:d", "version": 0}'
    remote = RemoteModel.parse(text, 1000)
    assert remote.path == "/tfs/v1/models/a%2Fb%20c%3Ad/versions/0"


def test_keep_alive_connection_is_reused(opened):
    """All requests of one thread, the metadata's too, use one connection."""
    engine, server = opened(doubles)
    for _ in range(5):
        engine.run(batch(1))
    assert len(server.requests) == 6
    assert server.connections == 1


def test_concurrent_batches_use_separate_connections(opened):
    """Batches of several threads do not wait for each other's connection."""
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def meet(request):
        if request.path.endswith(":predict"):
            together.wait()
        return doubles(request)

    engine, server = opened(meet)
    outputs = [None] * 4

    def work(number):
        outputs[number] = engine.run(batch(number))["y"].tolist()

    in_parallel(work, 4)
    assert outputs == [[0], [2], [4], [6]]
    assert server.connections == 4


def test_stale_idle_connection_is_replaced(opened):
    """A batch on an idle connection that the server closed is sent once more."""

    def leave(request):
        return replace(doubles(request), disconnects=request.connection == 0)

    engine, server = opened(leave)
    assert engine.run(batch(1))["y"].tolist() == [2]
    assert server.connections == 2
    assert len(server.requests_to(":predict")) == 1


def test_connection_close_header_is_respected(opened):
    """After Connection: close, a batch is sent once, on a new connection."""
    closing = replace(DOUBLES, headers={"Connection": "close"})
    engine, server = opened(
        lambda request: closing if request.path.endswith("/metadata") else None
    )
    with pytest.raises(Unavailable, match="broke"):
        engine.run(batch(1))
    assert len(server.requests_to(":predict")) == 1


def test_connect_timeout_does_not_bound_the_response(opened, monkeypatch):
    """Only connecting is bounded by the connect timeout, not the wait for outputs."""
    monkeypatch.setattr(connections, "_CONNECT_TIMEOUT_S", 0.1)

    def slow(request):
        if request.path.endswith(":predict"):
            time.sleep(0.3)
        return doubles(request)

    engine, server = opened(slow)
    assert engine.run(batch(1))["y"].tolist() == [2]
    assert server.connections == 1


def test_batch_is_retried_at_most_once(opened):
    """If the connection that replaces an idle one breaks too, the batch fails."""
    engine, server = opened(responding(None))
    for sent in (2, 3):
        with pytest.raises(Unavailable, match="model server broke"):
            engine.run(batch(1))
        assert len(server.requests_to(":predict")) == sent


def test_truncated_response_is_not_retried(opened):
    """A response shorter than its Content-Length is an error, without a retry."""
    cut = Response(
        body=b'{"outputs"', headers={"Content-Length": "999"}, disconnects=True
    )
    engine, server = opened(responding(cut))
    with pytest.raises(Unavailable, match="broke"):
        engine.run(batch(1))
    assert len(server.requests_to(":predict")) == 1


def test_response_after_timeout_ms_is_late(opened):
    """A late response is an error; the next batch has a new connection."""
    answered = threading.Event()

    def slow_once(request):
        if request.connection == 0 and request.path.endswith(":predict"):
            answered.wait(PATIENCE_S)
        return doubles(request)

    engine, _ = opened(slow_once, timeout_ms=500)
    with pytest.raises(Late, match=r"model server did not answer within 0\.5 s$"):
        engine.run(batch(1))
    answered.set()
    assert engine.run(batch(3))["y"].tolist() == [6]


def test_stopped_server_is_unavailable(tmp_path):
    """A server that stopped after the model was opened is unavailable, for 503."""
    server = ModelServer(doubles)
    with server.running():
        engine = open_remote(tmp_path, server)
    # On an open connection the server's thread would still answer.
    engine.close()
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=r"^the model server can't be reached \(Conn"
        ) as caught:
            engine.run(batch(1))
        assert caught.value.retry_after_s == 1


@pytest.mark.parametrize(
    ("status", "error", "becomes"),
    [
        (400, "JSON Value: x", RefusedInput),
        (500, "{{node f}} failed", ModelFailed),
        (501, "", ModelFailed),
        (413, "the body is larger", OutOfDeviceMemory),
        (507, "one row", OutOfDeviceMemory),
        (429, "OOM when allocating tensor with shape[64]", OutOfDeviceMemory),
        (429, "too many", Unavailable),
        (503, "The batch scheduling queue is full", Unavailable),
        (404, "Servable not found for request: Latest(m)", Unavailable),
        (502, "", Unavailable),
        (301, "", Unavailable),
        (401, "", Unavailable),
        (504, "Deadline exceeded", Late),
    ],
)
def test_http_status_maps_to_an_error(opened, status, error, becomes):
    """Each status has its error, with the host and the server's text."""
    engine, _ = opened(responding(Response.value({"error": error}, status)))
    with pytest.raises(becomes) as caught:
        engine.run(batch(1))
    assert type(caught.value) is becomes
    text = f"the model server answered {status}"
    assert str(caught.value) == (f"{text}: {error}" if error else text)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 1), ("", 1), ("soon", 1), ("-3", 1), ("²", 1), ("9" * 50, 3600)],
)
def test_retry_after_header_is_passed_on(opened, header, seconds):
    """The server's Retry-After is used if it is a number of seconds."""
    full = Response.value({}, 503, headers={"Retry-After": header})
    engine, _ = opened(responding(full))
    with pytest.raises(Unavailable) as caught:
        engine.run(batch(1))
    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize(
    ("body", "text"),
    [
        *((body, "") for body in (b"<html>", b"", b"\xff", b"[" * 100_000, b"[]")),
        (b'{"error": 5}', ""),
        (b'{"error": "' + b"a" * 999 + b'\\nb"}', ": " + "a" * 200),
    ],
)
def test_error_text_is_one_line_of_200_characters(opened, body, text):
    """A long text is shortened; a body other than {"error": text} is not quoted."""
    engine, _ = opened(responding(Response(503, body)))
    with pytest.raises(Unavailable, match=rf" answered 503{text}$"):
        engine.run(batch(1))


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"predictions": [1.0]}',
        b'{"outputs": ["1"]}',
        b'{"outputs": [true]}',
        b'{"outputs": [null]}',
        b'{"outputs": [[1.0], [2.0, 3.0]]}',
        b'{"outputs": [[1.0]]}',
    ],
)
def test_malformed_outputs_are_wrong_outputs(opened, body):
    """Outputs that do not match the signature are refused, for any rows."""
    engine, _ = opened(responding(Response(body=body)))
    with pytest.raises(WrongOutputs, match=r"^the model server's "):
        engine.run(batch(1))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("DT_INT32", 1.5), ("DT_INT8", 128), ("DT_UINT64", -1), ("DT_UINT64", 1 << 64)],
)
def test_integer_outputs_out_of_range_are_refused(opened, dtype, value):
    """A fraction, or a number outside the dtype's range, is refused, not wrapped."""
    remote = metadata(
        serving_default=({"x": tensor("DT_FLOAT", -1)}, {"y": tensor(dtype, -1)})
    )
    engine, _ = opened(
        lambda request: (
            remote
            if request.path.endswith("/metadata")
            else Response.value({"outputs": [1, value]})
        )
    )
    with pytest.raises(WrongOutputs, match="'y' is not what its signature says"):
        engine.run(batch(1, 2))


def test_uint64_outputs_are_exact():
    """Unsigned integers are read exactly over the whole range."""
    y = TensorSpec("y", np.dtype(np.uint64), ())
    read = wire.read_outputs(
        b'{"outputs": [1, 9223372036854775809, 18446744073709551615]}',
        Signature((y,), (y,)),
    )
    assert read["y"].tolist() == [1, (1 << 63) + 1, (1 << 64) - 1]


def test_non_contiguous_batch_is_sent(opened):
    """A batch that is a strided view is sent like any other."""
    engine, _ = opened(doubles)
    rows = np.arange(6, dtype=np.float32)[::2]
    assert engine.run({"x": rows})["y"].tolist() == [0, 4, 8]


def test_several_inputs_and_outputs_go_by_name(opened):
    """They are sent and read by name, whatever the server's order."""
    remote = metadata(
        serving_default=(
            {"b": tensor("DT_INT64", -1), "a": tensor("DT_STRING", -1, 2)},
            {"z": tensor("DT_STRING", -1), "y_bytes": tensor("DT_STRING", -1)},
        )
    )
    response = Response.value({"outputs": {"z": ["é"], "y_bytes": [{"b64": "/w=="}]}})
    engine, server = opened(
        lambda request: remote if request.path.endswith("/metadata") else response
    )
    (signature,) = engine.signatures.values()
    assert [spec.name for spec in signature.inputs] == ["a", "b"]
    a = np.array([[b"\xff", b""]], object)
    outputs = engine.run({"a": a, "b": np.array([-5])})
    assert outputs["z"].tolist() == ["é".encode()]
    assert outputs["y_bytes"].tolist() == [b"\xff"]
    (request,) = server.requests_to(":predict")
    assert request.json()["inputs"] == {
        "a": [[{"b64": "/w=="}, {"b64": ""}]],
        "b": [-5],
    }


@pytest.mark.parametrize(("remote", "ours"), DTYPES.items())
def test_each_dtype_of_the_api_is_supported(opened, remote, ours):
    """Each dtype of the API has a NumPy dtype; sizes are read, free ones too."""
    engine, _ = opened(
        lambda request: metadata(
            serving_default=(
                {"x": tensor(remote, -1, 3, -1)},
                {"y": tensor(remote, -1)},
            )
        )
    )
    signature = engine.signatures["serving_default"]
    assert signature.inputs == (TensorSpec("x", np.dtype(ours), (3, None)),)
    assert signature.outputs == (TensorSpec("y", np.dtype(ours), ()),)


def test_signatures_that_cannot_be_sent_are_skipped(opened, caplog):
    """The others are served, batched or not, and the log has the reason for each."""
    x, scalar = {"x": tensor("DT_FLOAT", -1)}, {"y": tensor("DT_FLOAT")}
    strange = {"__saved_model_init_op": {"dtype": "DT_INVALID", "tensor_shape": {}}}
    lost = {"dtype": "DT_FLOAT", "tensor_shape": {"unknown_rank": True}}
    remote = metadata(
        good=(x, x),
        fixed=({"x": tensor("DT_FLOAT", 1)}, x),
        scalar=(x, scalar),
        half=({"x": tensor("DT_BFLOAT16", -1)}, x),
        lost=(x, {"y": lost}),
        broken=(x, {"y": {}}),
        __saved_model_init_op=({}, strange),
    )
    engine, _ = opened(lambda request: remote)
    notes = {name: each.batching_note() for name, each in engine.signatures.items()}
    assert notes == {
        "good": "",
        "fixed": "not batched: input x has the fixed first dimension 1",
        "scalar": "not batched: output y is a single value",
        "lost": "not batched: output y has no known number of dimensions",
    }
    for line in (
        "signature half: input x: DT_BFLOAT16 is not served",
        "signature broken: output y can't be read",
        "signature __saved_model_init_op: it has no inputs or no outputs",
    ):
        assert line in caplog.text


@pytest.mark.parametrize("values", [{"x": 2.5}, {"x": [[1, 2], [3, 4]]}])
def test_whole_tensors_are_sent_without_a_row_around_them(opened, values):
    """A model that is not batched gets a scalar, or a tensor of any rank, as it is."""
    lost = {"dtype": "DT_FLOAT", "tensor_shape": {"unknown_rank": True}}
    described = metadata(serving_default=({"x": lost}, {"y": lost}))

    def respond(request):
        if request.path.endswith("/metadata"):
            return described
        return Response.value({"outputs": request.json()["inputs"]["x"]})

    engine, server = opened(respond)
    sent = {"x": np.array([values["x"]], "f4")}
    np.testing.assert_array_equal(engine.run(sent)["y"], sent["x"], strict=True)
    assert server.requests[-1].json()["inputs"] == values


def test_single_string_is_sent_without_a_row_around_it(opened):
    """A model that takes one text gets an object with base64, and gives a text."""
    text = {"x": tensor("DT_STRING")}, {"y": tensor("DT_STRING")}

    def respond(request):
        if request.path.endswith("/metadata"):
            return metadata(serving_default=text)
        return Response.value({"outputs": request.json()["inputs"]["x"]})

    engine, server = opened(respond)
    outputs = engine.run({"x": np.array([b"a\xff"], object)})
    assert outputs["y"].tolist() == [b"a\xff"]
    assert server.requests[-1].json()["inputs"] == {"x": {"b64": "Yf8="}}


def test_signature_name_selects_the_default_signature(opened):
    """With signature_name, only that signature is served, as the default."""
    x, z = {"x": tensor("DT_FLOAT", -1)}, {"z": tensor("DT_FLOAT", -1)}
    remote = metadata(serving_default=(z, z), other=(x, x))
    engine, server = opened(
        lambda request: (
            remote
            if request.path.endswith("/metadata")
            else Response.value({"outputs": [7]})
        ),
        signature_name="other",
    )
    assert list(engine.signatures) == ["serving_default"]
    assert engine.run(batch(1))["x"].tolist() == [7]
    assert server.requests[-1].json()["signature_name"] == "other"


def _states(state):
    return Response.value({"model_version_status": [{"version": "3", "state": state}]})


@pytest.mark.parametrize(
    ("metadata_says", "status_says", "text"),
    [
        (Response(404), _states("LOADING"), "is not ready: version 3 is LOADING"),
        (Response(404), Response(), "is not ready: it says nothing of any version"),
        (
            Response(404),
            Response.value({"error": "Could not find any versions of model m"}, 404),
            "has no such model: Could not find any versions of model m",
        ),
        (Response(404), Response(404), "has no such model: status 404"),
        (Response(503), Response(), "answered 503"),
        (None, Response(), "broke"),
        (Response(body=b"<html>"), Response(), "metadata can't be read"),
        (Response.value({"metadata": {}}), Response(), "metadata can't be read"),
        (metadata(), Response(), "the model has no signatures"),
        (metadata(f=({}, {})), Response(), "signature f: it has no inputs"),
    ],
)
def test_unavailable_model_is_a_load_error_with_the_reason(
    opened, metadata_says, status_says, text
):
    """The load error has the model's status, as far as the server reports it."""
    with pytest.raises(ModelLoadError, match=text):
        opened(
            lambda request: (
                metadata_says if request.path.endswith("/metadata") else status_says
            )
        )


ODD_DEFAULT = metadata(
    serving_default=({"x": tensor("DT_COMPLEX64", -1)}, {"y": tensor("DT_FLOAT", -1)}),
    other=({"x": tensor("DT_FLOAT", -1)}, {"y": tensor("DT_FLOAT", -1)}),
)


def test_default_signature_without_a_batch_is_a_load_error_unless_another_is_named(
    opened,
):
    """No other signature answers in its place, but one that the file names does."""
    with pytest.raises(ModelLoadError, match="serving_default: input x"):
        opened(lambda _: ODD_DEFAULT)
    engine, _ = opened(lambda _: ODD_DEFAULT, signature_name="other")
    assert list(engine.signatures) == ["serving_default"]
    with pytest.raises(ModelLoadError, match="signature serving_default: input x"):
        opened(lambda _: ODD_DEFAULT, signature_name="serving_default")


def test_unknown_signature_name_lists_the_signatures(opened):
    """The error for a wrong signature_name has the existing ones."""
    with pytest.raises(
        ModelLoadError, match=r"'f' can be served, but serving_default$"
    ):
        opened(doubles, signature_name="f")


def test_unreachable_server_is_a_load_error(tmp_path):
    """The error says so, and does not name the server's host to clients."""
    file = tmp_path / "tensorflow_serving.json"
    file.write_text('{"url": "http://127.0.0.1:1", "model": "m"}')
    with pytest.raises(ModelLoadError, match=r"model server can't be reached"):
        open_engine(tmp_path, Settings())


def test_parse_reads_every_key():
    """Every value can be set, and most have a default."""
    remote = RemoteModel.parse(
        b'{"url": "http://tfs:8501", "model": "m", "version": 3,'
        b' "signature_name": "f", "timeout_ms": 5}',
        1000,
    )
    assert (remote.url.hostname, remote.url.port, remote.model) == ("tfs", 8501, "m")
    assert (remote.version, remote.signature_name, remote.timeout_ms) == (3, "f", 5)
    remote = RemoteModel.parse(b'{"url": "https://tfs", "model": "m"}', 1000)
    assert (remote.version, remote.signature_name, remote.timeout_ms) == (
        *(None, None, 1000),
    )


def test_timeout_ms_is_bounded_by_the_request_timeout():
    """A timeout_ms above the server's own request timeout is that timeout."""
    text = b'{"url": "http://tfs", "model": "m", "timeout_ms": 5000}'
    assert RemoteModel.parse(text, 1000).timeout_ms == 1000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"model": "m"}',
        b'{"url": "http://tfs"}',
        b'{"url": "http://tfs", "model": ""}',
        b'{"url": "http://tfs", "model": 5}',
        b'{"url": "tfs:8501", "model": "m"}',
        b'{"url": "ftp://tfs", "model": "m"}',
        b'{"url": "http://", "model": "m"}',
        b'{"url": "http://[", "model": "m"}',
        b'{"url": "http://tfs:port", "model": "m"}',
        b'{"url": "http://me:secret@tfs", "model": "m"}',
        b'{"url": "http://tfs?a=b", "model": "m"}',
        b'{"url": "http://a..b:8501", "model": "m"}',
        b'{"url": "http://tfs", "model": "m", "version": "3"}',
        b'{"url": "http://tfs", "model": "m", "version": -1}',
        b'{"url": "http://tfs", "model": "m", "version": true}',
        b'{"url": "http://tfs", "model": "m", "signature_name": 1}',
        b'{"url": "http://tfs", "model": "m", "timeout_ms": 0}',
        b'{"url": "http://tfs", "model": "m", "timeout_ms": 1.5}',
        b'{"url": "http://tfs", "model": "m", "name": "m"}',
    ],
)
def test_invalid_file_is_a_load_error(text):
    """An invalid value names the file; a password in the URL is not quoted."""
    with pytest.raises(ModelLoadError, match=r"^tensorflow_serving\.json: ") as caught:
        RemoteModel.parse(text, 1000)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", ""), ("url", "tfs"), ("version", -1), ("timeout_ms", 0)],
)
def test_invalid_value_names_its_key(key, value):
    """The error has the key, and what was expected."""
    text = json.dumps({"url": "http://tfs", "model": "m", key: value}).encode()
    with pytest.raises(ModelLoadError, match=rf"json: {key}: expected "):
        RemoteModel.parse(text, 1000)


@st.composite
def _tensors(draw):
    """Draw a tensor's spec and rows of it: all dtypes of the API, any values."""
    dtype = np.dtype(draw(st.sampled_from(list(DTYPES.values()))))
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=3, max_side=3))
    if dtype.kind == "O":
        leaves = draw(st.lists(st.binary(max_size=5), min_size=1, max_size=9))
        array = np.empty(len(leaves), object)
        array[:] = leaves
    else:
        array = draw(arrays.arrays(dtype, shape))
    return TensorSpec("t_bytes", dtype, array.shape[1:]), array


@given(_tensors())
def test_sent_batch_is_exact_for_the_v1_decoder(drawn):
    """V1's decoder reads every value of a sent batch bit by bit; NaN is one value."""
    spec, array = drawn
    signature = Signature((spec,), (spec,))
    body = wire.write_inputs({spec.name: array}, signature, "f")
    read = rows.decode(body, {"f": signature})
    np.testing.assert_array_equal(read.inputs[spec.name], array, strict=True)
    assert read.form.columnar


@given(_tensors())
def test_outputs_of_the_v1_encoder_are_read_exactly(drawn):
    """Every value that V1's encoder writes is read bit by bit."""
    spec, array = drawn
    body = rows.encode({spec.name: array}, rows.Form(columnar=True))
    read = wire.read_outputs(body, Signature((spec,), (spec,)))
    np.testing.assert_array_equal(read[spec.name], array, strict=True)
