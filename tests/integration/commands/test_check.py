"""`models check` on real models, with TensorFlow in the test's own process."""

import pytest

from testing.server import ROOT
from tests.support.commands import run_models

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras warn of their own ageing parts.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def tf(keras):
    from app.engines.tensorflow.engine import tf  # noqa: PLC0415

    return tf


def check(model_dir, name):
    """The exit status, and what is printed."""
    return run_models(model_dir, "check", name, max_batch_size=16)


@pytest.fixture
def version(tmp_path):
    """The folder of version 1 of the model m."""
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    return folder


def save(tf, version, function, *specs):
    """Write a function of tensors as a SavedModel with one signature."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(version), signatures=module.function)


def test_the_digits_pass(keras):
    """The demo model may be batched; its sizes are its own."""
    status, output = check(ROOT / "models", "digits")
    assert status == 0
    assert "tensorflow_keras: 116.9 KiB of weights, " in output
    assert "  input  image: float32 (8, 8, 1)" in output
    assert "  output digit: float32 (10,)" in output
    assert "note:" not in output
    assert output.endswith("the model may be batched\n")


@pytest.mark.parametrize("size", [None, 40])
def test_layers_that_work_row_by_row_pass(keras, tmp_path, version, size):
    """Embeddings, attention and recurrent layers pass, of fixed and of free size."""
    layers = keras.layers
    tokens = keras.Input((size,), dtype="int32")
    signal = layers.Embedding(300, 16)(tokens)
    signal = layers.MultiHeadAttention(2, 8)(signal, signal)
    signal = layers.LayerNormalization()(signal)
    scores = layers.Dense(4)(layers.GRU(16)(signal))
    keras.Model(tokens, scores).save(version / "model.keras")
    status, output = check(tmp_path, "m")
    assert status == 0
    chosen = "integers below 256" + (", free sizes as 32" if size is None else "")
    assert f"timing random rows ({chosen}) ..." in output


def test_a_keras_model_that_takes_off_the_batchs_mean_fails(keras, tmp_path, version):
    """A Keras model that normalises over the batch must not be batched."""
    row = keras.Input((4,), name="row")
    signal = keras.layers.Dense(4)(row)
    signal = signal - keras.ops.mean(signal, axis=0, keepdims=True)
    keras.Model(row, keras.layers.Activation("tanh", name="out")(signal)).save(
        version / "model.keras"
    )
    status, output = check(tmp_path, "m")
    assert status == 1
    assert "Error: serving_default: a row's out differs by " in output
    assert "write max_batch_size = 1 into m/basket.toml" in output
    # Alone all rows are their own mean, which is no reason for a note here.
    assert "note:" not in output


def test_a_saved_model_that_minds_padding_fails(tf, tmp_path, version):
    """A SavedModel whose answers change beside rows of zeros must not be batched."""

    def share(x):
        rows = tf.reduce_sum(tf.cast(tf.reduce_any(x != 0, axis=1), tf.float32))
        return {"share": x * (rows / tf.cast(tf.shape(x)[0], tf.float32))}

    save(tf, version, share, tf.TensorSpec([None, 3], tf.float32, "x"))
    status, output = check(tmp_path, "m")
    assert status == 1
    assert "a row's share differs by" in output
    assert "beside zeros, more than" in output


def test_strings_are_tried(tf, tmp_path, version):
    """A model of strings is checked with random words."""

    def spell(text):
        return {
            "length": tf.strings.length(text),
            "upper": tf.strings.upper(text),
        }

    save(tf, version, spell, tf.TensorSpec([None, 2], tf.string, "text"))
    status, output = check(tmp_path, "m")
    assert status == 0
    assert "  input  text: string (2,)" in output
    assert "  output upper: string (2,)" in output
    assert "note:" not in output


def test_strings_that_are_refused_are_told(tf, tmp_path, version):
    """A model that wants pictures in its strings is said to refuse random ones."""

    def decode(text):
        flat = tf.map_fn(tf.io.decode_png, text, fn_output_signature=tf.uint8)
        return {"size": tf.zeros_like(text, tf.int32) + tf.shape(flat)[1]}

    save(tf, version, decode, tf.TensorSpec([None], tf.string, "png"))
    status, output = check(tmp_path, "m")
    assert status == 1
    assert "not compared: the model refuses random rows: InvalidArgumentError" in output
    assert output.endswith("Error: no signature could be compared\n")


def test_one_bad_signature_is_enough_to_fail(tf, tmp_path, version):
    """Each signature is checked, and the error names the one that is to blame."""
    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    module = tf.Module()
    module.good = tf.function(lambda x: {"y": x * 2}, input_signature=[spec])
    module.bad = tf.function(
        lambda x: {"y": tf.cumsum(x, axis=0)}, input_signature=[spec]
    )
    tf.saved_model.save(
        module,
        str(version),
        signatures={"serving_default": module.good, "running": module.bad},
    )
    status, output = check(tmp_path, "m")
    assert status == 1
    assert "Error: running: a row's y differs by" in output
    assert "serving_default: a row's" not in output
