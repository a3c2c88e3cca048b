"""The TensorFlow engine for Keras files, in the test's own process."""

import numpy as np
import pytest

from app import gpus
from app.engines import open_engine
from app.errors import ModelLoadError
from app.settings import Settings
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture(scope="module")
def keras_tensorflow():
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.engines.tensorflow import (  # noqa: PLC0415
        keras_file as keras_tensorflow,
    )

    return keras_tensorflow


@pytest.fixture
def reopened(keras_tensorflow, tmp_path):
    """Save a model, and open the file as the server does."""

    def reopen(model, name="model.keras"):
        model.save(tmp_path / name)
        return keras_tensorflow.open_engine(tmp_path / name, Settings())

    return reopen


def _rows(rows, *shape):
    return np.random.default_rng(rows).standard_normal((rows, *shape), np.float32)


def _names(specs):
    return {spec.name: (spec.dtype.name, spec.shape) for spec in specs}


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_keras_file_outputs_equal_the_model(keras, reopened, name):
    """The engine's outputs for a file are those of its model."""
    row = keras.Input((6,), name="row")
    hidden = keras.layers.Dense(8, activation="tanh")(row)
    model = keras.Model(row, keras.layers.Dense(3, name="scores")(hidden))
    engine = reopened(model, name)
    assert _names(engine.signatures["serving_default"].inputs) == {
        "row": ("float32", (6,))
    }
    assert _names(engine.signatures["serving_default"].outputs) == {
        "scores": ("float32", (3,))
    }
    for rows in (1, 2, 7, 64):
        batch = _rows(rows, 6)
        outputs = engine.run({"row": batch})
        direct = keras.ops.convert_to_numpy(model(batch, training=False))
        assert outputs["scores"].shape == (rows, 3)
        np.testing.assert_allclose(outputs["scores"], direct, atol=1e-6)


def test_new_batch_size_does_not_retrace(keras, keras_tensorflow):
    """A new batch size does not trace the model again."""
    calls = []

    class Noting(keras.layers.Layer):
        def call(self, rows):
            calls.append(rows)
            return rows

    model = keras.Sequential([keras.Input((4,)), Noting(), keras.layers.Dense(2)])
    engine = keras_tensorflow.KerasTensorFlowEngine(model)
    calls.clear()
    for rows in (1, 2, 3, 50):
        engine.run(
            {
                spec.name: _rows(rows, 4)
                for spec in engine.signatures["serving_default"].inputs
            }
        )
    assert calls == []


def test_dropout_is_off_in_serving(keras, reopened):
    """Dropout passes its input through when a model is served."""
    model = keras.Sequential([keras.Input((50,)), keras.layers.Dropout(0.9)])
    engine = reopened(model)
    batch = _rows(4, 50)
    (output,) = engine.run(
        {engine.signatures["serving_default"].inputs[0].name: batch}
    ).values()
    np.testing.assert_array_equal(output, batch)


def test_signature_of_dict_inputs_and_outputs(keras, reopened):
    """Inputs and outputs given as dicts have the dicts' names."""
    left = keras.Input((2,), name="left")
    right = keras.Input((2,), name="right", dtype="int32")
    wide = keras.ops.cast(right, "float32")
    outputs = {"sum": left + wide, "difference": left - wide}
    engine = reopened(keras.Model({"right": right, "left": left}, outputs))
    assert _names(engine.signatures["serving_default"].inputs) == {
        "left": ("float32", (2,)),
        "right": ("int32", (2,)),
    }
    outputs = engine.run(
        {"left": _rows(3, 2) * 0 + 5, "right": np.full((3, 2), 2, np.int32)}
    )
    np.testing.assert_array_equal(outputs["sum"], np.full((3, 2), 7.0))
    np.testing.assert_array_equal(outputs["difference"], np.full((3, 2), 3.0))


def test_signature_of_nested_outputs_has_layer_names(keras, reopened):
    """Outputs in nested structures have the names of their layers."""
    row = keras.Input((2,), name="row")
    parts = {
        name: keras.layers.Rescaling(scale, name=name)(row)
        for scale, name in enumerate("cab")
    }
    outputs = {"two": [parts["c"], parts["a"]], "one": parts["b"]}
    engine = reopened(keras.Model(row, outputs))
    outputs = engine.run({"row": np.ones((1, 2), np.float32)})
    assert {name: rows.tolist() for name, rows in outputs.items()} == {
        "b": [[2, 2]],
        "c": [[0, 0]],
        "a": [[1, 1]],
    }


def _classes(keras):
    number = keras.Input((1,), name="row", dtype="int64")
    words = keras.layers.StringLookup(vocabulary=["tea", "milk"], invert=True)
    return keras.Model(number, words(number))


def _joined(keras):
    row = keras.Input((1,), name="row", dtype="uint64")
    return keras.Model(row, keras.ops.concatenate([row, row], axis=1))


def _counted(keras):
    words = keras.layers.TextVectorization(
        vocabulary=["tea", "milk"], output_mode="count"
    )
    row = keras.Input((1,), name="row", dtype="string")
    return keras.Model(row, words(row))


@pytest.mark.parametrize(
    ("make", "row", "dtype", "expected"),
    [
        (_classes, np.int64(2), "object", [b"milk"]),
        (_joined, np.uint64(2**64 - 1), "uint64", [2**64 - 1, 2**64 - 1]),
        (_counted, b"milk milk", "int64", [0, 0, 2]),
    ],
)
def test_signature_has_the_traced_outputs(keras, reopened, make, row, dtype, expected):
    """Dtypes and shapes that Keras declares wrongly are the traced graph's."""
    engine = reopened(make(keras))
    (spec,) = engine.signatures["serving_default"].outputs
    assert (spec.dtype.name, spec.shape) == (dtype, (len(expected),))
    (input_,) = engine.signatures["serving_default"].inputs
    (found,) = engine.run({"row": np.array([[row]], input_.dtype)}).values()
    assert found.tolist() == [expected]


@pytest.mark.parametrize("how", [{"ragged": True}, {"sparse": True}])
def test_ragged_or_sparse_output_is_a_load_error(keras, reopened, how):
    """A model with ragged or sparse outputs is refused with their name."""
    mode = {"output_mode": "multi_hot"} if "sparse" in how else {}
    words = keras.layers.TextVectorization(
        vocabulary=["tea", "milk"], name="words", **mode, **how
    )
    row = keras.Input((), name="row", dtype="string")
    (kind,) = how
    with pytest.raises(ModelLoadError, match=f"output words is a {kind} tensor"):
        reopened(keras.Model(row, words(row)))


def test_free_dimension_accepts_ragged_shapes(keras, reopened):
    """A dimension that the model leaves free takes any size."""
    row = keras.Input((None, 3), name="row")
    engine = reopened(keras.Model(row, keras.ops.sum(row, axis=1)))
    assert engine.signatures["serving_default"].inputs[0].shape == (None, 3)
    for size in (1, 5):
        (output,) = engine.run({"row": np.ones((2, size, 3), np.float32)}).values()
        np.testing.assert_array_equal(output, np.full((2, 3), float(size)))


def test_bfloat16_output_is_float32(keras, reopened):
    """A bfloat16 output is widened to float32."""
    row = keras.Input((3,), name="row")
    model = keras.Model(row, keras.layers.Dense(2, dtype="bfloat16", name="out")(row))
    engine = reopened(model)
    assert _names(engine.signatures["serving_default"].outputs) == {
        "out": ("float32", (2,))
    }
    assert engine.run({"row": _rows(2, 3)})["out"].dtype == np.float32


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"no zip", "model.keras"), (b"no hdf5", "model.h5"), (b"", "model.keras")],
)
def test_malformed_file_is_a_load_error(keras_tensorflow, tmp_path, content, name):
    """A file that Keras can't read is an error with the file and without a path."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ModelLoadError, match=name) as caught:
        keras_tensorflow.open_engine(file, Settings())
    assert str(tmp_path) not in str(caught.value)


def test_model_without_fixed_inputs_is_a_load_error(keras, keras_tensorflow):
    """A model that was never built is refused."""
    model = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ModelLoadError, match="no fixed inputs"):
        keras_tensorflow.KerasTensorFlowEngine(model)


def test_time_distributed_over_free_steps_is_a_load_error(keras, reopened):
    """TimeDistributed is served with a fixed number of steps only."""

    def model(steps):
        words = keras.Input((steps, 3))
        dense = keras.layers.TimeDistributed(keras.layers.Dense(2), name="each")
        return keras.Model(words, keras.Sequential([words, dense])(words))

    with pytest.raises(ModelLoadError, match=r"layer 'each'.*a fixed one"):
        reopened(model(None))
    known, rows = model(5), _rows(2, 5, 3)
    engine = reopened(known)
    (spec,) = engine.signatures["serving_default"].inputs
    (found,) = engine.run({spec.name: rows}).values()
    np.testing.assert_allclose(found, known(rows), rtol=1e-5, atol=1e-6)


NOT_RUN = "is code of yours, which is not run here"
DEFINE_IT = (
    "is code of yours: define it in service.py beside the file, with "
    "BASKET_USER_CODE=on"
)


def _with_a_lambda(keras):
    return keras.layers.Lambda(lambda rows: rows * 2)


def _with_a_class(keras):
    class Mine(keras.layers.Layer):
        def call(self, rows):
            return rows * 2

    # As of a class in a notebook.
    Mine.__module__ = "__main__"
    return Mine()


def _with_a_function(keras):
    def mine(rows):
        return rows * 3

    return keras.layers.Dense(2, activation=mine)


@pytest.mark.parametrize(
    ("layer", "name", "code"),
    [
        (_with_a_lambda, "model.keras", f"a Python lambda {NOT_RUN}:"),
        (_with_a_lambda, "model.h5", f"a Python lambda {NOT_RUN}:"),
        (_with_a_class, "model.keras", f"class 'Mine' {DEFINE_IT}, or"),
        (_with_a_class, "model.h5", f"layer 'Mine' {DEFINE_IT}, or"),
        (_with_a_function, "model.keras", f"function 'mine' {DEFINE_IT}, or"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_custom_code_in_a_keras_file_is_a_load_error(
    keras, reopened, tmp_path, layer, name, code
):
    """Custom code is refused by its name; exported to a SavedModel, it is served."""
    model = keras.Sequential([keras.Input((3,), name="row"), layer(keras)])
    with pytest.raises(ModelLoadError) as raised:
        reopened(model, name)
    assert str(raised.value) == (
        f'{name}: {code} write a SavedModel with model.export("models/NAME/VERSION")'
    )
    model.export(tmp_path / "1", verbose=False)
    engine = open_engine(tmp_path / "1", Settings())
    (given,) = engine.run({"row": _rows(2, 3)}).values()
    np.testing.assert_allclose(given, model(_rows(2, 3)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kept", [0, 9000])
def test_truncated_keras_file_is_a_load_error(
    keras, reopened, keras_tensorflow, tmp_path, kept
):
    """A partial .keras file is refused with its size."""
    row = keras.Input((3,), name="row")
    reopened(keras.Model(row, keras.layers.Dense(2048)(row)))
    file = tmp_path / "model.keras"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelLoadError) as raised:
        keras_tensorflow.open_engine(file, Settings())
    assert str(raised.value) == (
        f"model.keras is no whole .keras file ({kept} bytes): half copied, or damaged"
    )


TWO_GPUS = (gpus.Gpu(0, "GPU-a", 16384), gpus.Gpu(1, "GPU-b", 8192))
BOTH_GROW = [("GPU:0", "grows"), ("GPU:1", "grows")]


@pytest.mark.parametrize(
    ("fraction", "there", "expected"),
    [
        pytest.param(0.25, TWO_GPUS, [("GPU:0", 4096), ("GPU:1", 2048)], id="a share"),
        pytest.param(None, TWO_GPUS, BOTH_GROW, id="no share"),
        pytest.param(None, (), BOTH_GROW, id="no share, and no NVML"),
        pytest.param(0.25, TWO_GPUS[:1], BOTH_GROW, id="NVML knows others"),
    ],
)
def test_gpu_memory_fraction_sets_a_limit_for_each_gpu(
    keras_tensorflow, monkeypatch, fraction, there, expected
):
    """Each visible GPU is capped at its share, if NVML knows its size.

    Without a GPU: TensorFlow's calls are recorded, and the devices are made up.
    """
    config = keras_tensorflow.tf.config
    devices = [config.PhysicalDevice(f"GPU:{n}", "GPU") for n in range(2)]
    calls = []
    monkeypatch.setattr(config, "list_physical_devices", lambda kind: devices)
    monkeypatch.setattr(gpus, "visible", lambda: there)
    monkeypatch.setattr(
        config,
        "set_logical_device_configuration",
        lambda gpu, limits: calls.append((gpu.name, limits[0].memory_limit)),
    )
    monkeypatch.setattr(
        config.experimental,
        "set_memory_growth",
        lambda gpu, on: calls.append((gpu.name, "grows" if on else "fixed")),
    )
    keras_tensorflow.limit_gpu_memory(fraction)
    assert calls == expected


def test_demo_model_accuracy_is_at_least_97_percent(keras_tensorflow):
    """The demo model classifies at least 97 % of the test set correctly."""
    from models.digits import train  # noqa: PLC0415

    engine = keras_tensorflow.open_engine(train.MODEL_PATH, Settings())
    _, unseen, _, digits = train.split_scans()
    predictions = engine.run({"image": unseen})["digit"].argmax(axis=1)
    assert len(unseen) == 360
    assert (predictions == digits).mean() >= 0.97
    assert train.MODEL_PATH.stat().st_size < 1_000_000
