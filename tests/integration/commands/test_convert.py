"""`models convert`: a file of Keras 2 as a SavedModel."""

import json
from contextlib import closing

import h5py
import numpy as np
import pytest

from app.engines import open_engine
from app.settings import Settings
from tests.support.commands import run_models
from tests.support.marks import USES_TENSORFLOW

pytestmark = [*USES_TENSORFLOW, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture(name="tf_keras")
def _tf_keras():
    return pytest.importorskip("tf_keras")


def _texts(tf_keras):
    """Return a model of text and a number, with a function of TensorFlow."""
    word = tf_keras.Input((1,), dtype="string", name="word")
    number = tf_keras.Input((2,), name="number")
    ids = tf_keras.layers.StringLookup(vocabulary=["tea", "milk"])(word)
    vector = tf_keras.layers.Flatten()(tf_keras.layers.Embedding(4, 2)(ids))
    return tf_keras.Model([word, number], {"sum": vector + 2.0 * number, "id": ids})


def test_converted_file_is_the_next_version_and_answers_as_tf_keras_does(
    tf, tf_keras, tmp_path
):
    """The command says what it compared, and how to serve the result."""
    model = _texts(tf_keras)
    file = tmp_path / "models" / "m" / "3" / "model.h5"
    file.parent.mkdir(parents=True)
    model.save(file)
    status, output = run_models(tmp_path / "models", "convert", file)
    target = tmp_path / "models" / "m" / "4"
    version = tf_keras.__version__
    assert status == 0, output
    assert f"model.h5: read by tf_keras {version}" in output
    assert f"5 random rows: id differs from tf_keras {version}'s by up to 0.0e+00" in (
        output
    )
    assert output.endswith(
        f"written: {target}\nserve it alone: make serve MODEL={target}\n"
    )
    words = np.array([[b"tea"], [b"?"]], object)
    numbers = np.array([[1, 2], [3, 4]], np.float32)
    expected = model([tf.constant(words), numbers])
    with closing(open_engine(target, Settings())) as engine:
        found = engine.run({"word": words, "number": numbers})
    np.testing.assert_allclose(found["sum"], expected["sum"], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found["id"], expected["id"])


def test_converted_file_of_any_name_is_a_new_model(tf, tf_keras, tmp_path):
    """It has the file's name, and nothing is overwritten."""
    row = tf_keras.Input((2,), name="row")
    last = tf_keras.layers.Dense(1)
    tf_keras.Model(row, last(row)).save(tmp_path / "prices.hdf5")
    for expected in (0, 1):
        status, output = run_models(
            tmp_path / "models", "convert", tmp_path / "prices.hdf5"
        )
        assert status == expected, output
    target = tmp_path / "models" / "prices" / "1"
    assert (target / "saved_model.pb").is_file()
    assert output == f"Error: {target} exists already\n"


def test_file_that_tf_keras_may_not_read_leaves_nothing(keras, tf_keras, tmp_path):
    """Lambdas would run, and a file of Keras 3 needs no conversion."""
    row = tf_keras.Input((2,))
    own = tf_keras.layers.Lambda(lambda values: values * 2)
    tf_keras.Model(row, own(row)).save(tmp_path / "own.h5")
    keras.Sequential([keras.Input((2,))]).save(tmp_path / "new.keras")
    for name, text in (
        ("own.h5", "own.h5: a Python lambda is code of yours, which is not run here"),
        ("new.keras", "new.keras is no file of Keras 2"),
    ):
        status, output = run_models(tmp_path / "models", "convert", tmp_path / name)
        assert (status, f"Error: {text}" in output) == (1, True), output
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("kind", "function", "options"),
    [
        ("TFOpLambda", "compat.v1.write_file", {"contents": "a"}),
        ("SlicingOpLambda", "io.gfile.makedirs", {}),
        ("ClassMethod", "io.gfile.makedirs", {}),
    ],
)
def test_file_that_names_a_function_that_writes_is_refused(
    tf_keras, tmp_path, kind, function, options
):
    """tf_keras would call it as soon as it has the file."""
    written = tmp_path / "written"
    names = {"function": function, "cls_symbol": function, "method_name": "__call__"}
    layers = [
        {
            "class_name": "InputLayer",
            "name": "x",
            "config": {"batch_input_shape": [None, 6], "name": "x"},
            "inbound_nodes": [],
        },
        {
            "class_name": kind,
            "name": "op",
            "config": {"name": "op", **names},
            "inbound_nodes": [["_CONSTANT_VALUE", -1, str(written), options]],
        },
    ]
    places = {"input_layers": [["x", 0, 0]], "output_layers": [["op", 0, 0]]}
    config = {"class_name": "Functional", "config": {"layers": layers, **places}}
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file.attrs["keras_version"] = "2.11.0"
        file.attrs["model_config"] = json.dumps(config)
    status, output = run_models(tmp_path / "models", "convert", tmp_path / "own.h5")
    assert (status, "is not among what tf_keras may load here" in output) == (1, True)
    assert not written.exists()
