"""`models export` with TensorFlow in the test's own process."""

import numpy as np
import pytest

from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE
from app.settings import Settings
from testing.server import ROOT
from tests.support.commands import run_models
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture
def export(tmp_path):
    """Export version 3 of the model m; return the exit status and the output."""

    def run(*args):
        out = tmp_path / "out"
        return run_models(tmp_path / "models", "export", "m", "--output", out, *args)

    return run


@pytest.fixture
def version(tmp_path):
    """The folder of version 3 of the model m."""
    folder = tmp_path / "models" / "m" / "3"
    folder.mkdir(parents=True)
    return folder


def digits(keras):
    return keras.models.load_model(ROOT / "models/digits/1/model.keras", compile=False)


def convolutions(keras):
    """Return a deep model with random weights, moving averages included."""
    layers = keras.layers
    image = signal = keras.Input((24, 24, 3), name="image")
    for filters in (8, 16, 32):
        signal = layers.Conv2D(filters, 3, strides=2, padding="same")(signal)
        signal = layers.BatchNormalization()(signal)
        signal = layers.Activation("relu")(signal)
        signal = layers.Dropout(0.5)(signal)
    signal = layers.GlobalAveragePooling2D()(signal)
    scores = layers.Dense(5, activation="softmax", name="scores")(signal)
    model = keras.Sequential([image, keras.Model(image, scores)])
    random = np.random.default_rng(0)
    model.set_weights(
        [random.uniform(0.1, 0.5, each.shape) for each in model.get_weights()]
    )
    return model


def several(keras):
    """Return a model with several dtypes, free sizes, and unusual names."""
    layers = keras.layers
    tokens = keras.Input((None,), name="tokens", dtype="int32")
    other = keras.Input((4,), name="more.of-it")
    flag = keras.Input((1,), name="flag", dtype="bool")
    sums = keras.ops.sum(layers.Embedding(100, 4)(tokens), axis=1)
    mixed = keras.ops.where(flag, sums, layers.Dense(4)(other))
    outputs = {
        "z": layers.Dense(3)(mixed),
        "a": keras.ops.argmax(mixed, axis=-1),
        "half": layers.Dense(2, dtype="bfloat16")(other),
    }
    return keras.Model([flag, tokens, other], outputs)


def words(keras):
    """Return a model that looks strings up in a table."""
    word = keras.Input((), name="word", dtype="string")
    numbers = keras.layers.StringLookup(vocabulary=["tea", "milk"])(word)
    return keras.Model(word, keras.layers.Embedding(4, 3, name="vector")(numbers))


def rows(signature, count):
    random = np.random.default_rng(7)
    batch = {}
    for spec in signature.inputs:
        shape = (count, *(size or 6 for size in spec.shape))
        values = random.random(shape) * 10
        batch[spec.name] = values.astype(spec.dtype)
        if spec.dtype.kind == "b":
            batch[spec.name] = values > 5
        if spec.dtype.kind == "O":
            batch[spec.name] = random.choice(
                np.array([b"tea", b"milk", b"?"], "O"), shape
            )
    return batch


@pytest.mark.parametrize(
    ("build", "file"),
    [
        (digits, "model.keras"),
        (convolutions, "model.keras"),
        (convolutions, "model.h5"),
        (several, "model.keras"),
        (words, "model.keras"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_exported_saved_model_equals_its_keras_file(
    keras, version, export, tmp_path, build, file
):
    """The export has the signature and the outputs that Basket serves."""
    # With some weights all rows have their largest value in the same place.
    keras.utils.set_random_seed(3)
    build(keras).save(version / file)
    status, output = export()
    assert (status, "-e MODEL_NAME=m tensorflow/serving" in output) == (0, True)
    served = open_engine(version, Settings())
    exported = open_engine(tmp_path / "out" / "m" / "3", Settings())
    assert set(exported.signatures) == set(served.signatures) == {DEFAULT_SIGNATURE}
    signature = served.signatures[DEFAULT_SIGNATURE]
    found = exported.signatures[DEFAULT_SIGNATURE]
    assert set(found.inputs) == set(signature.inputs)
    assert set(found.outputs) == set(signature.outputs)
    assert exported.weight_bytes == served.weight_bytes > 0
    for count in (1, 13):
        batch = rows(signature, count)
        expected, actual = served.run(batch), exported.run(batch)
        for spec in signature.outputs:
            assert actual[spec.name].dtype == expected[spec.name].dtype
            assert np.ptp(expected[spec.name]) > 0 or count == 1
            np.testing.assert_allclose(
                actual[spec.name], expected[spec.name], rtol=1e-5, atol=1e-5
            )


def test_export_of_an_unreadable_file_leaves_nothing(version, export, tmp_path):
    """A Keras file that can't be read is one line, and nothing is written."""
    (version / "model.keras").write_bytes(b"no zip")
    status, output = export()
    assert status == 1
    assert output.splitlines()[-1].startswith("Error: model.keras is no whole")
    assert not (tmp_path / "out").exists()


def test_export_that_tensorflow_refuses_leaves_nothing(
    keras, version, export, tmp_path
):
    """A model that TensorFlow can't save is one line, and nothing is left."""
    row = keras.Input((2,), name="no such name")
    keras.Model(row, keras.layers.Dense(1)(row)).save(version / "model.keras")
    status, output = export()
    assert status == 1
    (error,) = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert error.startswith("Error: can't be written as savedmodel: ")
    assert "no such name" in error
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
