"""`models quantize` with TensorFlow in the test's own process, and a server."""

import json
import shutil

import numpy as np
import pytest

from app.commands import quantize
from app.engines import open_engine
from app.settings import Settings
from testing.server import ROOT, serving
from tests.support.commands import run_models
from tests.support.marks import USES_TENSORFLOW

pytestmark = [
    *USES_TENSORFLOW,
    pytest.mark.timeout(180),
]


@pytest.fixture
def models(tmp_path):
    """A folder of models with the model m, which has an empty version 3."""
    (tmp_path / "m" / "3").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def command(models):
    """Run a command on the folder; return the exit status and the output."""

    def run(*args):
        return run_models(models, *args)

    return run


def dense(keras, biases=(0, 0, 0)):
    """Return a Dense layer whose columns are almost equal except for their biases."""
    layer = keras.layers.Dense(3, name="scores")
    model = keras.Sequential([keras.Input((4,), name="row"), layer])
    kernel = np.repeat(np.array([[0.5], [1], [0.2], [0.7]]), 3, axis=1)
    kernel[:, 1] += [0.001, -0.001, 0, 0]
    layer.set_weights([kernel, np.array(biases)])
    return model


def attention(keras):
    """Return a model with layers inside of a layer, and a free sequence length."""
    layers = keras.layers
    words = keras.Input((None,), dtype="int32", name="words")
    vectors = layers.Embedding(256, 16, name="embedding")(words)
    mixed = layers.MultiHeadAttention(2, 8, name="attention")(vectors, vectors)
    pooled = layers.GlobalAveragePooling1D()(mixed)
    return keras.Model(words, layers.Dense(1, name="price")(pooled))


def test_quantized_version_is_served(keras, models, command, tmp_path):
    """The demo model's int8 version is served, with Keras's own predictions."""
    shutil.rmtree(models / "m")
    shutil.copytree(ROOT / "models/digits", models / "digits")
    samples = [json.loads((ROOT / f"samples/{n}.json").read_text()) for n in range(10)]
    rows = np.array([each["instances"][0] for each in samples])
    np.save(tmp_path / "rows.npy", rows)
    data = str(tmp_path / "rows.npy")
    status, output = command("quantize", "digits", "--int8", "--data", data)
    assert status == 0, output
    assert "  quantized: dense, digit\n  as before: conv2d, conv2d_1\n" in output
    assert "digit: the same top class in 100 % of 10 rows" in output
    assert output.endswith(f"written: {models / 'digits' / '2'}\n")
    file = models / "digits" / "2" / "model.keras"
    assert file.stat().st_size < 0.6 * (
        (models / "digits" / "1" / "model.keras").stat().st_size
    )
    # Overlaid digits, for which no version has a confident prediction.
    mixed = (rows + rows[::-1]) / 2
    expected, original = (
        keras.models.load_model(each, compile=False).predict(mixed, verbose=0)
        for each in (file, models / "digits" / "1" / "model.keras")
    )
    with serving(model_dir=str(models), default_model="digits") as server:
        reply = server.predict(mixed.tolist())
    assert reply.headers["X-Model-Version"] == "2"
    actual = np.array(reply.json()["predictions"])
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.abs(actual - original).max() > 1e-3


def test_quantization_below_agreement_leaves_nothing(keras, models, command):
    """A version below --agreement is removed; --force keeps it."""
    dense(keras).save(models / "m" / "3" / "model.keras")
    status, output = command("quantize", "m", "--int8")
    assert status == 1
    assert "scores: the same top class in " in output
    assert output.endswith(
        "required: 99.00%. Nothing is written; --force writes it anyway\n"
    )
    assert [path.name for path in (models / "m").iterdir()] == ["3"]
    assert command("quantize", "m", "--int8", "--agreement", "0.1")[0] == 0
    status, output = command("quantize", "m", "--int8", "--version", "3", "--force")
    assert status == 0
    assert output.splitlines()[-2].endswith("required: 99.00%; forced")
    assert sorted(path.name for path in (models / "m").iterdir()) == ["3", "4", "5"]


def test_interrupted_quantization_leaves_nothing(keras, models, command, monkeypatch):
    """Ctrl-C during the comparison leaves no part of a version."""
    dense(keras).save(models / "m" / "3" / "model.keras")

    def interrupt(*_):
        assert len(list((models / "m").iterdir())) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(quantize, "compare", interrupt)
    status, output = command("quantize", "m", "--int8")
    assert (status, output.splitlines()[-1]) == (1, "Aborted!")
    assert [path.name for path in (models / "m").iterdir()] == ["3"]


def test_quantization_of_embedding_and_not_of_attention(keras, models, command):
    """An embedding is quantized, attention is not, and rows stay independent."""
    model = attention(keras)
    model.save(models / "m" / "3" / "model.keras")
    status, output = command("quantize", "m", "--int8", "--agreement", "0.5")
    assert status == 0, output
    assert "  quantized: embedding, price\n  as before: " in output
    assert "price: values within 1% of the largest in " in output
    engine = open_engine(models / "m" / "4", Settings())
    assert engine.weight_bytes < 0.6 * 4 * model.count_params()
    assert command("check", "m", "--version", "4")[0] == 0


def test_quantization_notes_one_top_class_and_refuses_a_second_time(
    keras, models, command
):
    """One top class for all rows is noted; a quantized version is an error."""
    dense(keras, biases=(0, 50, 0)).save(models / "m" / "3" / "model.keras")
    status, output = command("quantize", "m", "--int8")
    assert status == 0
    assert "note: all rows have one top class, so this tells little" in output
    status, output = command("quantize", "m", "--int8")
    assert status == 1
    assert output.endswith("Error: model.keras is quantized already: scores\n")


def test_quantization_without_supported_layers_is_an_error(keras, models, command):
    """The error has the layer classes that Keras supports, and the model's."""
    image = keras.Input((4, 4, 1))
    scores = keras.layers.Flatten()(keras.layers.Conv2D(2, 3, name="conv")(image))
    keras.Model(image, scores).save(models / "m" / "3" / "model.keras")
    status, output = command("quantize", "m", "--int8")
    assert status == 1
    assert output.splitlines()[-1] == (
        "Error: nothing in model.keras can be quantized to int8: Keras does that to "
        "layers Dense, EinsumDense, Embedding, ReversibleEmbedding, not to those "
        "inside of others, and with weights there are Conv2D"
    )
    assert [path.name for path in (models / "m").iterdir()] == ["3"]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (np.zeros((5, 3)), "rows[0]: expected shape (4,), given (3,)"),
        (np.full((5, 4), np.nan), "rows[0] holds NaN or infinity"),
        (np.diag([1, 1, np.inf, 1]), "rows[2] holds NaN or infinity"),
    ],
    ids=["shape", "NaN", "infinity"],
)
def test_quantization_refuses_invalid_data(
    keras, models, command, tmp_path, rows, problem
):
    """Rows of a wrong shape, NaN and infinity name the file and the row."""
    dense(keras).save(models / "m" / "3" / "model.keras")
    np.save(tmp_path / "rows.npy", rows)
    data = str(tmp_path / "rows.npy")
    status, output = command("quantize", "m", "--int8", "--data", data)
    assert status == 1
    assert output.endswith(f"Error: --data {data}: {problem}\n")
    assert [path.name for path in (models / "m").iterdir()] == ["3"]
