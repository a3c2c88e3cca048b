"""`models check` on real models, with TensorFlow in the test's own process."""

import re

import numpy as np
import pytest

from testing.server import ROOT
from tests.support.commands import run_models
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


def check(model_dir, name, *options):
    """Return the exit status and the output."""
    return run_models(model_dir, "check", name, *options, max_batch_size=16)


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


def test_check_passes_for_the_demo_model(keras):
    """The demo model may be batched; its sizes are shown."""
    status, output = check(ROOT / "models", "digits")
    assert status == 0
    assert "tensorflow_keras: 116.9 KiB of weights, " in output
    assert "  input  image: float32 (8, 8, 1)" in output
    assert "  output digit: float32 (10,)" in output
    assert "note:" not in output
    assert output.endswith("the model may be batched\n")


@pytest.mark.parametrize("size", [None, 40])
def test_check_passes_for_embedding_attention_and_recurrent_layers(
    keras, tmp_path, version, size
):
    """Layers that compute row by row pass, with fixed and free sequence lengths."""
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


def test_check_fails_for_normalization_over_the_batch(keras, tmp_path, version):
    """A Keras model that subtracts the batch's mean must not be batched."""
    row = keras.Input((4,), name="row")
    signal = keras.layers.Dense(4)(row)
    signal = signal - keras.ops.mean(signal, axis=0, keepdims=True)
    keras.Model(row, keras.layers.Activation("tanh", name="out")(signal)).save(
        version / "model.keras"
    )
    status, output = check(tmp_path, "m")
    assert status == 1
    reason = (
        "Error: serving_default: its rows depend on each other: a row's out differs"
    )
    assert reason in output
    assert "write max_batch_size = 1 into its basket.toml" in output
    # Alone all rows are their own mean, which is no reason for a note here.
    assert "note:" not in output


def test_check_fails_for_a_saved_model_that_depends_on_padding(tf, tmp_path, version):
    """A SavedModel whose outputs change beside rows of zeros must not be batched."""

    def share(x):
        rows = tf.reduce_sum(tf.cast(tf.reduce_any(x != 0, axis=1), tf.float32))
        return {"share": x * (rows / tf.cast(tf.shape(x)[0], tf.float32))}

    save(tf, version, share, tf.TensorSpec([None, 3], tf.float32, "x"))
    status, output = check(tmp_path, "m")
    assert status == 1
    assert "a row's share differs by" in output
    assert "beside zeros, more than" in output


@pytest.fixture
def texts(tf, tmp_path, version):
    """A model of texts: its answers depend on neighbors of three words or more."""

    def count(text):
        words = tf.strings.split(text).to_tensor()
        longest = tf.maximum(tf.shape(words)[1], 2)
        found = tf.reduce_sum(tf.cast(words != "", tf.int32), axis=1)
        return {"share": tf.cast(found / longest, tf.float32)}

    save(tf, version, count, tf.TensorSpec([None], tf.string, "text"))
    return tmp_path


def test_check_fails_for_texts_that_are_padded_to_the_longest(texts):
    """The error says what such models lack."""
    status, output = check(texts, "m")
    assert status == 1
    assert "a row's share differs by" in output
    assert "give TextVectorization an output_sequence_length" in output


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        (b'["a", "b c", "a c"]', 0),
        (b'{"instances": [{"text": "a"}, {"text": "a b c d"}]}', 1),
    ],
    ids=["short", "long"],
)
def test_check_compares_rows_of_ones_own(texts, tmp_path, rows, status):
    """With short rows the model is batched, with long ones it is not."""
    file = tmp_path / "rows.json"
    file.write_bytes(rows)
    found, output = check(texts, "m", "--rows", str(file))
    assert found == status
    assert f"timing your rows ({3 - status}) ..." in output


def test_check_reads_rows_as_arrays(keras, tmp_path, version):
    """Arrays have the names of the inputs; as many as a batch has are compared."""
    left, right = (keras.Input((2,), name=name) for name in ("left", "right"))
    model = keras.Model([left, right], keras.layers.Add(name="sum")([left, right]))
    model.save(version / "model.keras")
    np.savez(tmp_path / "rows.npz", left=np.ones((20, 2)), right=np.ones((20, 2)))
    status, output = check(tmp_path, "m", "--rows", str(tmp_path / "rows.npz"))
    assert status == 0
    assert "timing your rows (20 of shape (2,), (2,)) ..." in output
    assert "comparing 16 of your 20 rows alone and in batches of 16 ..." in output


def test_check_compares_rows_of_each_shape(keras, tmp_path, version):
    """Rows of unlike lengths share no batch."""
    row = keras.Input((None, 1))
    keras.Model(row, keras.layers.GlobalMaxPooling1D()(row)).save(
        version / "model.keras"
    )
    (tmp_path / "rows.json").write_text("[[[1], [2]], [[3]], [[4]]]")
    status, output = check(tmp_path, "m", "--rows", str(tmp_path / "rows.json"))
    assert status == 0
    assert "your rows (1 of shape (2, 1))" in output
    assert "your rows (2 of shape (1, 1))" in output


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("rows.json", b"[1, 2]", "instances[0]: expected string, given"),
        ("rows.json", b"[", "rows.json: "),
        ("rows.npz", b"PK", "rows.npz: "),
    ],
)
def test_check_says_what_is_wrong_with_rows(texts, tmp_path, name, content, error):
    """The error names the file and the place in it."""
    (tmp_path / name).write_bytes(content)
    status, output = check(texts, "m", "--rows", str(tmp_path / name))
    assert status == 1
    assert "Error: --rows " in output
    assert error in output


def test_check_tries_random_words_for_string_inputs(tf, tmp_path, version):
    """A model with string inputs is checked with random words."""

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


def test_check_shows_that_random_strings_are_refused(tf, tmp_path, version):
    """A model that decodes images from strings refuses random words."""

    def decode(text):
        flat = tf.map_fn(tf.io.decode_png, text, fn_output_signature=tf.uint8)
        return {"size": tf.zeros_like(text, tf.int32) + tf.shape(flat)[1]}

    save(tf, version, decode, tf.TensorSpec([None], tf.string, "png"))
    status, output = check(tmp_path, "m")
    assert status == 1
    assert (
        "not compared: the model refuses random rows: RefusedInput: the model" in output
    )
    assert output.endswith("Error: no signature could be compared\n")


@pytest.mark.parametrize(
    ("shape", "note", "size"),
    [
        (
            [3, 2],
            "batches of exactly 3 rows: input x has the fixed first dimension 3",
            3,
        ),
        (None, "not batched: input x has no known number of dimensions", 1),
    ],
)
def test_check_shows_why_a_model_is_not_batched(
    tf, tmp_path, version, shape, note, size
):
    """Its only batch size is timed, and nothing is said of sharing a batch."""
    save(tf, version, lambda x: {"y": x * 2}, tf.TensorSpec(shape, tf.float32, "x"))
    status, output = check(tmp_path, "m")
    assert status == 0
    assert f"signature serving_default\n  {note}\n" in output
    timed = re.findall(r"^ +(\d+) +[\d.]+ +[\d.]+$", output, re.MULTILINE)
    assert timed == [str(size)]
    assert "may be batched" not in output


def test_check_names_the_signature_that_fails(tf, tmp_path, version):
    """Each signature is checked, and the error names the failing one."""
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
    assert "Error: running: its rows depend on each other: a row's y" in output
    assert "serving_default: its rows" not in output
