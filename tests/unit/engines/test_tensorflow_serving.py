"""The engine whose model is on a TensorFlow Serving, beside one that is scripted."""

import json
import threading
from dataclasses import replace

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
    Unavailable,
    WrongOutputs,
)
from app.settings import Settings
from testing.clients import in_parallel
from tests.support.model_server import ModelServer, Says, metadata, tensor

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


def doubles(asked):
    """A model that doubles."""
    if asked.path.endswith("/metadata"):
        return DOUBLES
    return Says.value({"outputs": [2 * x for x in asked.json()["inputs"]["x"]]})


def says(answer):
    """A server that answers every batch with this, and has the model that doubles."""
    return lambda asked: DOUBLES if asked.path.endswith("/metadata") else answer


@pytest.fixture(name="opened")
def _opened(tmp_path):
    """Runs a server, and opens its model `m` with what else the file should say."""
    running, engines = [], []

    def open_(answer, **values):
        server = ModelServer(answer)
        running.append(server.running())
        running[-1].__enter__()
        (tmp_path / "tensorflow_serving.json").write_text(
            json.dumps({"url": server.url, "model": "m", **values})
        )
        engines.append(open_engine(tmp_path, Settings()))
        return engines[-1], server

    yield open_
    for engine in engines:
        engine.close()
        engine.close()
    for each in running:
        each.__exit__(None, None, None)


def batch(*values):
    return {"x": np.array(values, np.float32)}


def test_a_batch_goes_there_in_columns(opened):
    """One request holds the batch and the signature's name; the answer is an array."""
    engine, server = opened(doubles)
    answer = engine.run(batch(1, 0.2))
    assert answer["y"].dtype == np.float32
    assert answer["y"].tolist() == [2, np.float32(0.4)]
    (asked,) = server.sent(":predict")
    assert (asked.method, asked.path) == ("POST", "/v1/models/m:predict")
    assert asked.json() == {
        "signature_name": "serving_default",
        "inputs": {"x": [1.0, 0.2]},
    }
    assert engine.platform == "tensorflow_serving"


def test_a_version_stands_in_every_path(opened):
    """With a version, metadata and batches are that version's."""
    _, server = opened(doubles, version=3)
    assert server.asked[0].path == "/v1/models/m/versions/3/metadata"


def test_names_and_base_paths_are_quoted():
    """A name of any characters stays one part of the path, behind the url's own."""
    text = b'{"url": "https://gate:99/tfs/", "model": "a/b c:d", "version": 0}'
    remote = RemoteModel.parse(text, 1000)
    assert remote.path == "/tfs/v1/models/a%2Fb%20c%3Ad/versions/0"


def test_connections_are_kept(opened):
    """All requests of one thread, metadata too, go over one connection."""
    engine, server = opened(doubles)
    for _ in range(5):
        engine.run(batch(1))
    assert len(server.asked) == 6
    assert server.connections == 1


def test_threads_have_connections_of_their_own(opened):
    """Batches that run side by side do not wait for each other's connection."""
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def meet(asked):
        if asked.path.endswith(":predict"):
            together.wait()
        return doubles(asked)

    engine, server = opened(meet)
    answers = [None] * 4

    def work(place):
        answers[place] = engine.run(batch(place))["y"].tolist()

    in_parallel(work, 4)
    assert answers == [[0], [2], [4], [6]]
    assert server.connections == 4


def test_a_stale_connection_is_replaced(opened):
    """A batch that meets a kept connection closed by the server is sent once more."""

    def leave(asked):
        return replace(doubles(asked), hangs_up=asked.connection == 0)

    engine, server = opened(leave)
    assert engine.run(batch(1))["y"].tolist() == [2]
    assert server.connections == 2
    assert len(server.sent(":predict")) == 1


def test_an_announced_close_is_believed(opened):
    """After Connection: close a batch has a new connection, and is sent once on it."""
    closing = replace(DOUBLES, headers={"Connection": "close"})
    engine, server = opened(
        lambda asked: closing if asked.path.endswith("/metadata") else None
    )
    with pytest.raises(Unavailable, match="broke"):
        engine.run(batch(1))
    assert len(server.sent(":predict")) == 1


def test_an_answer_may_take_longer_than_a_connection(opened, monkeypatch):
    """Only the wait for a connection is cut short, not the one for an answer."""
    monkeypatch.setattr(connections, "_CONNECT_WITHIN_S", 0.5)
    engine, _ = opened(doubles)
    (kept,) = engine._connections._kept
    assert kept.timeout == 0.5
    assert kept.sock.gettimeout() == Settings().request_timeout_ms / 1000


def test_a_batch_is_sent_twice_at_most(opened):
    """A kept connection that breaks is replaced once; if the new one does, too, 503."""
    engine, server = opened(says(None))
    for sent in (2, 3):
        with pytest.raises(Unavailable, match=r"server 127\.0\.0\.1 broke"):
            engine.run(batch(1))
        assert len(server.sent(":predict")) == sent


def test_an_answer_cut_short(opened):
    """Less than was announced is no answer, and is not asked for again."""
    cut = Says(body=b'{"outputs"', headers={"Content-Length": "999"}, hangs_up=True)
    engine, server = opened(says(cut))
    with pytest.raises(Unavailable, match="broke"):
        engine.run(batch(1))
    assert len(server.sent(":predict")) == 1


def test_slow(opened):
    """No answer within timeout_ms is Late, and the next batch has a new connection."""
    answered = threading.Event()

    def slow_once(asked):
        if asked.connection == 0 and asked.path.endswith(":predict"):
            answered.wait(PATIENCE_S)
        return doubles(asked)

    engine, _ = opened(slow_once, timeout_ms=20_000)
    (kept,) = engine._connections._kept
    assert kept.sock.gettimeout() == 20
    # Only here, where nothing is ever answered in time.
    kept.sock.settimeout(0.01)
    with pytest.raises(Late, match=r"server 127\.0\.0\.1 did not answer within 20 s$"):
        engine.run(batch(1))
    answered.set()
    assert engine.run(batch(3))["y"].tolist() == [6]


def test_gone(opened):
    """A server that is not there any more is unavailable, whatever was kept."""
    engine, server = opened(doubles)
    server._http.shutdown()
    server._http.server_close()
    engine.close()
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=r"^the model server 127\.0\.0\.1 can't be reached \(Conn"
        ) as caught:
            engine.run(batch(1))
        assert caught.value.retry_after_s == 1


@pytest.mark.parametrize(
    ("status", "error", "becomes"),
    [
        (400, "JSON Value: x", ModelFailed),
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
def test_errors_become_ours(opened, status, error, becomes):
    """Each status has the error that says the same here, with host and text."""
    engine, _ = opened(says(Says.value({"error": error}, status)))
    with pytest.raises(becomes) as caught:
        engine.run(batch(1))
    assert type(caught.value) is becomes
    text = f"the model server 127.0.0.1 answered {status}"
    assert str(caught.value) == (f"{text}: {error}" if error else text)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 1), ("", 1), ("soon", 1), ("-3", 1), ("²", 1), ("9" * 50, 3600)],
)
def test_retry_after_is_handed_on(opened, header, seconds):
    """The other server's Retry-After is ours where it is a number of seconds."""
    full = Says.value({}, 503, headers={"Retry-After": header})
    engine, _ = opened(says(full))
    with pytest.raises(Unavailable) as caught:
        engine.run(batch(1))
    assert caught.value.retry_after_s == seconds


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"\xff", b"[" * 100_000, b'{"error": 5}', b"[]"]
)
def test_errors_without_a_text(opened, body):
    """What is no {"error": text} is not repeated, and breaks nothing."""
    engine, _ = opened(says(Says(503, body)))
    with pytest.raises(Unavailable, match=r"answered 503$"):
        engine.run(batch(1))


def test_long_errors_are_shortened(opened):
    """Of the other server's text one line is repeated, and 200 characters of it."""
    engine, _ = opened(says(Says.value({"error": "a" * 999 + "\nb"}, 400)))
    with pytest.raises(ModelFailed, match=r" answered 400: a{200}$"):
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
def test_answers_that_are_none(opened, body):
    """An answer that is not what the signature says is refused, whatever the rows."""
    engine, _ = opened(says(Says(body=body)))
    with pytest.raises(WrongOutputs, match=r"^the model server's "):
        engine.run(batch(1))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("DT_INT32", 1.5), ("DT_INT8", 128), ("DT_UINT64", -1), ("DT_UINT64", 1 << 64)],
)
def test_integers_are_never_bent(opened, dtype, value):
    """A fraction, or a number out of the dtype's range, is refused and not wrapped."""
    theirs = metadata(
        serving_default=({"x": tensor("DT_FLOAT", -1)}, {"y": tensor(dtype, -1)})
    )
    engine, _ = opened(
        lambda asked: (
            theirs
            if asked.path.endswith("/metadata")
            else Says.value({"outputs": [1, value]})
        )
    )
    with pytest.raises(WrongOutputs, match="'y' is not what its signature says"):
        engine.run(batch(1, 2))


def test_large_integers_beside_small_ones():
    """An answer of unsigned integers is read exactly, over the whole range."""
    y = TensorSpec("y", np.dtype(np.uint64), ())
    read = wire.read_outputs(
        b'{"outputs": [1, 9223372036854775809, 18446744073709551615]}',
        Signature((y,), (y,)),
    )
    assert read["y"].tolist() == [1, (1 << 63) + 1, (1 << 64) - 1]


def test_rows_that_lie_apart_in_memory(opened):
    """A batch that is a view with gaps is sent like any other."""
    engine, _ = opened(doubles)
    rows = np.arange(6, dtype=np.float32)[::2]
    assert engine.run({"x": rows})["y"].tolist() == [0, 4, 8]


def test_several_inputs_and_outputs(opened):
    """They go and come by name, whatever order the server has them in."""
    theirs = metadata(
        serving_default=(
            {"b": tensor("DT_INT64", -1), "a": tensor("DT_STRING", -1, 2)},
            {"z": tensor("DT_STRING", -1), "y_bytes": tensor("DT_STRING", -1)},
        )
    )
    answer = Says.value({"outputs": {"z": ["é"], "y_bytes": [{"b64": "/w=="}]}})
    engine, server = opened(
        lambda asked: theirs if asked.path.endswith("/metadata") else answer
    )
    (signature,) = engine.signatures.values()
    assert [spec.name for spec in signature.inputs] == ["a", "b"]
    a = np.array([[b"\xff", b""]], object)
    outputs = engine.run({"a": a, "b": np.array([-5])})
    assert outputs["z"].tolist() == ["é".encode()]
    assert outputs["y_bytes"].tolist() == [b"\xff"]
    (asked,) = server.sent(":predict")
    assert asked.json()["inputs"] == {"a": [[{"b64": "/w=="}, {"b64": ""}]], "b": [-5]}


@pytest.mark.parametrize(("theirs", "ours"), DTYPES.items())
def test_dtypes(opened, theirs, ours):
    """Each of the protocol's dtypes is NumPy's; sizes are read with or without."""
    engine, _ = opened(
        lambda asked: metadata(
            serving_default=(
                {"x": tensor(theirs, -1, 3, -1)},
                {"y": tensor(theirs, -1)},
            )
        )
    )
    signature = engine.signatures["serving_default"]
    assert signature.inputs == (TensorSpec("x", np.dtype(ours), (3, None)),)
    assert signature.outputs == (TensorSpec("y", np.dtype(ours), ()),)


def test_signatures_without_a_batch_are_left_out(opened, caplog):
    """The others are served, and the log says what is wrong with each."""
    x, scalar = {"x": tensor("DT_FLOAT", -1)}, {"y": tensor("DT_FLOAT")}
    strange = {"__saved_model_init_op": {"dtype": "DT_INVALID", "tensor_shape": {}}}
    lost = {"dtype": "DT_FLOAT", "tensor_shape": {"unknown_rank": True}}
    theirs = metadata(
        good=(x, x),
        fixed=({"x": tensor("DT_FLOAT", 1)}, x),
        scalar=(x, scalar),
        half=({"x": tensor("DT_BFLOAT16", -1)}, x),
        lost=(x, {"y": lost}),
        broken=(x, {"y": {}}),
        __saved_model_init_op=({}, strange),
    )
    engine, _ = opened(lambda asked: theirs)
    assert list(engine.signatures) == ["good"]
    for line in (
        "signature fixed: input x has the fixed first dimension 1",
        "signature scalar: output y is a single value",
        "signature half: input x: DT_BFLOAT16 is not served",
        "signature lost: output y has no known number of dimensions",
        "signature broken: output y can't be read",
        "signature __saved_model_init_op: it has no inputs or no outputs",
    ):
        assert line in caplog.text


def test_a_signature_by_its_name(opened):
    """With signature_name that one alone is served, to requests that name none."""
    x, z = {"x": tensor("DT_FLOAT", -1)}, {"z": tensor("DT_FLOAT", -1)}
    theirs = metadata(serving_default=(z, z), other=(x, x))
    engine, server = opened(
        lambda asked: (
            theirs if asked.path.endswith("/metadata") else Says.value({"outputs": [7]})
        ),
        signature_name="other",
    )
    assert list(engine.signatures) == ["serving_default"]
    assert engine.run(batch(1))["x"].tolist() == [7]
    assert server.asked[-1].json()["signature_name"] == "other"


def _states(state):
    return Says.value({"model_version_status": [{"version": "3", "state": state}]})


@pytest.mark.parametrize(
    ("metadata_says", "status_says", "text"),
    [
        (Says(404), _states("LOADING"), "is not ready: version 3 is LOADING"),
        (Says(404), Says(), "is not ready: it says nothing of any version"),
        (
            Says(404),
            Says.value({"error": "Could not find any versions of model m"}, 404),
            "has no such model: Could not find any versions of model m",
        ),
        (Says(404), Says(404), "has no such model: status 404"),
        (Says(503), Says(), "answered 503"),
        (None, Says(), "broke"),
        (Says(body=b"<html>"), Says(), "metadata can't be read"),
        (Says.value({"metadata": {}}), Says(), "metadata can't be read"),
        (metadata(), Says(), "the model has no signatures"),
        (metadata(f=({}, {})), Says(), "signature f: it has no inputs"),
    ],
)
def test_models_that_are_not_there(opened, metadata_says, status_says, text):
    """A model that can't be served now says why, as far as the server tells."""
    with pytest.raises(ModelLoadError, match=text):
        opened(
            lambda asked: (
                metadata_says if asked.path.endswith("/metadata") else status_says
            )
        )


def test_a_signature_that_is_not_there(opened):
    """A wrong signature_name is answered with those that there are."""
    with pytest.raises(
        ModelLoadError, match=r"'f' can be served, but serving_default$"
    ):
        opened(doubles, signature_name="f")


def test_nobody_listens(tmp_path):
    """A server that can't be reached when the model is opened is named, by its host."""
    file = tmp_path / "tensorflow_serving.json"
    file.write_text('{"url": "http://127.0.0.1:1", "model": "m"}')
    with pytest.raises(ModelLoadError, match=r"server 127\.0\.0\.1 can't be reached"):
        open_engine(tmp_path, Settings())


def test_parse():
    """Every value can be set, and most need not be."""
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


def test_no_answer_is_waited_for_when_no_row_is():
    """A timeout_ms above the server's own limit is that limit."""
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
        b'{"url": "http://tfs", "model": "m", "version": "3"}',
        b'{"url": "http://tfs", "model": "m", "version": -1}',
        b'{"url": "http://tfs", "model": "m", "version": true}',
        b'{"url": "http://tfs", "model": "m", "signature_name": 1}',
        b'{"url": "http://tfs", "model": "m", "timeout_ms": 0}',
        b'{"url": "http://tfs", "model": "m", "timeout_ms": 1.5}',
        b'{"url": "http://tfs", "model": "m", "name": "m"}',
    ],
)
def test_parse_refuses(text):
    """What makes no sense is refused when it is read, by the file's name."""
    with pytest.raises(ModelLoadError, match=r"^tensorflow_serving\.json: ") as caught:
        RemoteModel.parse(text, 1000)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", ""), ("url", "tfs"), ("version", -1), ("timeout_ms", 0)],
)
def test_parse_names_the_key(key, value):
    """A value that can't be is told by its own key, with what would be right."""
    text = json.dumps({"url": "http://tfs", "model": "m", key: value}).encode()
    with pytest.raises(ModelLoadError, match=rf"json: {key}: expected "):
        RemoteModel.parse(text, 1000)


@st.composite
def _tensors(draw):
    """A signature's tensor and rows of it: all dtypes of the protocol, any values."""
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
def test_what_is_sent_is_what_the_server_reads(drawn):
    """V1's own decoder finds every value in a body, to the bit; NaN is one value."""
    spec, array = drawn
    signature = Signature((spec,), (spec,))
    body = wire.write_inputs({spec.name: array}, signature, "f")
    read = rows.decode(body, {"f": signature})
    np.testing.assert_array_equal(read.inputs[spec.name], array, strict=True)
    assert read.columnar


@given(_tensors())
def test_what_the_server_writes_is_what_is_read(drawn):
    """Every value that V1's own encoder writes comes back, to the bit."""
    spec, array = drawn
    body = rows.encode({spec.name: array}, columnar=True)
    read = wire.read_outputs(body, Signature((spec,), (spec,)))
    np.testing.assert_array_equal(read[spec.name], array, strict=True)
