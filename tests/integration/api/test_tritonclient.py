"""Triton's own Python client against a real Basket."""

import contextlib

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from testing.server import serving, simulated_models, wait_until
from tests.support.tensors import inputs_of, outputs_of

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras use deprecated functions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
KEY = {"Authorization": "Bearer key"}
ADMIN = {"Authorization": "Bearer admin"}
WORKERS = 2


def _echo(folder):
    """Write a Keras model that returns its three inputs."""
    # Not at the top: collecting tests must not import TensorFlow.
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    inputs = {
        "f": keras.Input((2, 3), name="f"),
        "i": keras.Input((), name="i", dtype="int64"),
        "b": keras.Input((4,), name="b", dtype="bool"),
    }
    outputs = {f"out_{name}": keras.layers.Identity()(x) for name, x in inputs.items()}
    folder.mkdir(parents=True)
    keras.Model(inputs, outputs).save(folder / "model.keras")


def _words(folder):
    """Write a SavedModel that returns its strings."""
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415

    module = tf.Module()
    spec = tf.TensorSpec([None, 2], tf.string, name="s")
    echo = tf.function(lambda s: {"out_s": tf.identity(s)}, input_signature=[spec])
    tf.saved_model.save(module, str(folder), signatures=echo.get_concrete_function())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    _echo(models / "echo" / "1")
    _words(models / "words" / "3")
    with serving("--threads=4", model_dir=str(models)) as server:
        yield server


@contextlib.contextmanager
def _talking(server):
    client = InferenceServerClient(f"127.0.0.1:{server.port}")
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def client(server):
    with _talking(server) as client:
        yield client


def _arrays(rows):
    random = np.random.default_rng(rows)
    return {
        "f": random.standard_normal((rows, 2, 3)).astype(np.float32),
        "i": random.integers(-(2**63), 2**63 - 1, rows),
        "b": random.random((rows, 4)) < 0.5,
    }


def _strings(rows):
    words = [f"rów {row}" if row % 2 else "" for row in range(2 * rows)]
    return np.array([word.encode() for word in words], object).reshape(rows, 2)


def test_client_health(client):
    """Server and models are live and ready."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("words", "3")
    assert not client.is_model_ready("words", "4")
    assert not client.is_model_ready("nobody")


def test_client_metadata_and_configuration(client):
    """The client reads the metadata of the server and of models."""
    assert client.get_server_metadata()["name"] == "basket"
    metadata = client.get_model_metadata("echo")
    assert metadata["versions"] == ["1"]
    assert metadata["platform"] == "tensorflow_keras"
    shapes = {
        each["name"]: (each["datatype"], each["shape"]) for each in metadata["inputs"]
    }
    assert shapes == {
        "f": ("FP32", [-1, 2, 3]),
        "i": ("INT64", [-1]),
        "b": ("BOOL", [-1, 4]),
    }
    config = client.get_model_config("words", "3")
    assert config["max_batch_size"] == 64
    assert config["input"] == [{"name": "s", "data_type": "TYPE_STRING", "dims": [2]}]


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_client_round_trip_of_numbers(client, binary_in, binary_out, rows):
    """FP32, INT64 and BOOL come back unchanged, in JSON and in binary."""
    arrays = _arrays(rows)
    names = [f"out_{name}" for name in arrays]
    result = client.infer(
        "echo",
        inputs_of(arrays, binary=binary_in),
        outputs=outputs_of(names, binary=binary_out),
        request_id=f"{rows} rows",
    )
    for name, array in arrays.items():
        given = result.as_numpy(f"out_{name}")
        assert given.dtype == array.dtype
        assert given.shape == array.shape
        assert given.tobytes() == array.tobytes()
    assert result.get_response()["id"] == f"{rows} rows"


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_client_round_trip_of_strings(client, binary_in, binary_out, rows):
    """BYTES come back unchanged, in JSON as text."""
    strings = _strings(rows)
    result = client.infer(
        "words",
        inputs_of({"s": strings}, binary=binary_in),
        model_version="3",
        outputs=outputs_of(["out_s"], binary=binary_out),
    )
    given = result.as_numpy("out_s").tolist()
    if not binary_out:
        given = [[word.encode() for word in row] for row in given]
    assert given == strings.tolist()


def test_client_requests_outputs(client):
    """Without requested outputs all are returned."""
    arrays = _arrays(2)
    inputs = inputs_of(arrays, binary=True)
    everything = client.infer("echo", inputs).get_response()["outputs"]
    assert sorted(each["name"] for each in everything) == ["out_b", "out_f", "out_i"]
    one = client.infer("echo", inputs, outputs=outputs_of(["out_i"], binary=True))
    assert [each["name"] for each in one.get_response()["outputs"]] == ["out_i"]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_client_compresses_requests(client, algorithm):
    """Gzip and deflate requests are accepted."""
    arrays = _arrays(33)
    result = client.infer(
        "echo", inputs_of(arrays, binary=True), request_compression_algorithm=algorithm
    )
    np.testing.assert_array_equal(result.as_numpy("out_f"), arrays["f"])


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("name", "wrong", "text"),
    [
        ("f", np.zeros((2, 3, 2), "f4"), "input 'f': expected shape [-1, 2, 3], given"),
        ("f", np.zeros((2, 2, 3), "f8"), "input 'f': expected datatype FP32, given"),
        ("f", np.zeros((3, 2, 3), "f4"), "input 'f' has 3 rows and input 'i' 2"),
        ("i", np.zeros((2, 2), "i8"), "input 'i': expected shape [-1], given [2, 2]"),
        ("x", np.zeros(2, "i8"), 'the name of an input, b or f or i, given "x"'),
    ],
)
def test_client_error_has_status_and_text(client, binary, name, wrong, text):
    """The client's exception has the response's status and text."""
    arrays = {**_arrays(2), name: wrong}
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo", inputs_of(arrays, binary=binary))
    assert caught.value.status() == "400"
    assert text in caught.value.message()


def test_client_timeout_is_the_deadline(client):
    """The client's timeout is the request's deadline."""
    with pytest.raises(InferenceServerException, match="the request's deadline passed"):
        client.infer("echo", inputs_of(_arrays(1), binary=True), timeout=1)


def test_client_error_for_an_unknown_model(client):
    """The exception names the existing models."""
    with pytest.raises(InferenceServerException, match="there are: echo, words"):
        client.get_model_metadata("nobody")


def test_client_repository_index(client):
    """The client lists the repository; unloading requires an admin key."""
    assert client.get_model_repository_index() == [
        {"name": "echo", "version": "1", "state": "READY", "reason": ""},
        {"name": "words", "version": "3", "state": "READY", "reason": ""},
    ]
    with pytest.raises(InferenceServerException, match="BASKET_ADMIN_KEYS"):
        client.unload_model("echo")


# Two workers, and a key of each kind.


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    simulation = {"base_ms": 0, "input_shape": [2], "outputs": 2}
    folder = simulated_models(tmp_path_factory.mktemp("two"), m=simulation)
    workers = f"--workers={WORKERS}"
    settings = {"model_dir": folder, "api_keys": "key", "admin_keys": "admin"}
    with serving(workers, "--threads=2", **settings) as server:
        server.headers.update(KEY)
        yield server


def _stats(client):
    (stats,) = client.get_inference_statistics("m", headers=KEY)["model_stats"]
    return stats


def test_client_statistics_of_all_workers(two_workers):
    """Each worker returns the statistics of all, each response once."""
    requests, rows = 40, 3
    row = inputs_of({"input": np.ones((rows, 2), np.float32)}, binary=True)
    with _talking(two_workers) as client:
        before = _stats(client)
    for _ in range(requests):
        with _talking(two_workers) as client:
            client.infer("m", row, headers=KEY)

    def are_written():
        with _talking(two_workers) as client:
            now = _stats(client)["inference_stats"]["success"]["count"]
        return now - before["inference_stats"]["success"]["count"] == requests

    wait_until(are_written, 60)
    for _ in range(5 * WORKERS):
        with _talking(two_workers) as client:
            after = _stats(client)
        assert after["inference_count"] - before["inference_count"] == requests * rows
        assert after["execution_count"] - before["execution_count"] == requests
        for stage in ("success", "queue", "compute_infer", "compute_output"):
            kinds = [each["inference_stats"][stage] for each in (before, after)]
            assert kinds[1]["count"] - kinds[0]["count"] == requests
            assert kinds[1]["ns"] > kinds[0]["ns"]


def test_client_unloads_and_loads_in_all_workers(two_workers):
    """With an admin key the client unloads and loads a model in all workers."""

    def ready_in_all(wanted):
        def asked():
            for _ in range(5 * WORKERS):
                with _talking(two_workers) as client:
                    if client.is_model_ready("m") is not wanted:
                        return False
            return True

        return asked

    with _talking(two_workers) as client:
        with pytest.raises(InferenceServerException, match="Bearer KEY"):
            client.unload_model("m")
        with pytest.raises(InferenceServerException, match="takes an admin key"):
            client.unload_model("m", headers=KEY)
        client.unload_model("m", headers=ADMIN)
        wait_until(ready_in_all(False), 60)
        (entry,) = client.get_model_repository_index(headers=KEY)
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "is unloaded")
        with pytest.raises(InferenceServerException, match="is unloaded"):
            client.get_model_metadata("m", headers=KEY)
        client.load_model("m", headers=ADMIN)
        wait_until(ready_in_all(True), 60)
        with pytest.raises(InferenceServerException, match="as its folder has it"):
            client.load_model("m", config="{}", headers=ADMIN)
