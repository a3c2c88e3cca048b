"""The engine for SavedModels, with TensorFlow in the test's own process."""

import errno
import gc
import json
import logging
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from app.batching.batch_memory import BatchMemory
from app.engines import open_engine
from app.errors import ModelLoadError, OutOfDeviceMemory, RefusedInput
from app.memory import give_back
from app.settings import Settings
from testing.memory import resident_mib
from testing.server import ROOT
from testing.tried.saved_models import (
    CONSTANTS,
    dropout_graph,
    legacy_optimizer_model,
    with_operation,
)
from testing.tried.saving import Saving
from tests.support.documents import blocks
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture
def opened(tf, tmp_path):
    """Save functions as signatures, and open the folder as the server does.

    Each signature is a function and the specs of its inputs.
    """

    def save_and_open(**signatures):
        module = tf.Module()
        functions = {}
        for name, (function, *specs) in signatures.items():
            functions[name] = tf.function(function, input_signature=specs)
            setattr(module, name, functions[name])
        tf.saved_model.save(module, str(tmp_path / "1"), signatures=functions)
        return open_engine(tmp_path / "1", Settings())

    return save_and_open


def specs(signature):
    return {
        spec.name: (spec.dtype.name, spec.shape)
        for spec in (*signature.inputs, *signature.outputs)
    }


def test_all_signatures_are_served(tf, opened):
    """Each signature has its own function, names, dtypes and shapes."""
    engine = opened(
        serving_default=(
            lambda left, right: {
                "sum": left + tf.cast(right, tf.float32),
                "any": tf.reduce_any(right > 0, axis=1),
            },
            tf.TensorSpec([None, 2], tf.float32, "left"),
            tf.TensorSpec([None, 2], tf.int64, "right"),
        ),
        twice=(lambda x: {"y": x * 2}, tf.TensorSpec([None], tf.float64, "x")),
    )
    assert engine.platform == "tensorflow_savedmodel"
    assert set(engine.signatures) == {"serving_default", "twice"}
    assert specs(engine.signatures["serving_default"]) == {
        "left": ("float32", (2,)),
        "right": ("int64", (2,)),
        "any": ("bool", ()),
        "sum": ("float32", (2,)),
    }
    assert specs(engine.signatures["twice"]) == {
        "x": ("float64", ()),
        "y": ("float64", ()),
    }
    left = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    outputs = engine.run({"left": left, "right": np.eye(3, 2, dtype=np.int64)})
    np.testing.assert_array_equal(outputs["sum"], [[2, 2], [3, 5], [5, 6]])
    np.testing.assert_array_equal(outputs["any"], [True, True, False])
    outputs = engine.run({"x": np.array([1.5, 2.5])}, "twice")
    np.testing.assert_array_equal(outputs["y"], [3.0, 5.0])


def test_strings_keep_their_bytes(tf, opened):
    """Empty strings, zero bytes and invalid UTF-8 go in and out unchanged."""
    engine = opened(
        serving_default=(
            lambda text: {
                "both": tf.stack([text, text + b"!"], axis=1),
                "length": tf.strings.length(text),
            },
            tf.TensorSpec([None], tf.string, "text"),
        )
    )
    assert specs(engine.signatures["serving_default"]) == {
        "text": ("object", ()),
        "both": ("object", (2,)),
        "length": ("int32", ()),
    }
    texts = [b"", b"a\0b\0", b"\xff\xfe", "ß".encode()]
    outputs = engine.run({"text": np.array(texts, object)})
    assert outputs["both"].dtype == object
    assert outputs["both"].tolist() == [[text, text + b"!"] for text in texts]
    assert outputs["length"].tolist() == [0, 4, 2, 2]


def test_free_dimension_accepts_ragged_shapes(tf, opened):
    """A dimension that a signature leaves free takes any size."""
    engine = opened(
        serving_default=(
            lambda x: {"sum": tf.reduce_sum(x, axis=1), "same": x},
            tf.TensorSpec([None, None, 2], tf.float32, "x"),
        )
    )
    assert specs(engine.signatures["serving_default"]) == {
        "x": ("float32", (None, 2)),
        "same": ("float32", (None, 2)),
        "sum": ("float32", (2,)),
    }
    for size in (0, 1, 5):
        outputs = engine.run({"x": np.ones((3, size, 2), np.float32)})
        np.testing.assert_array_equal(outputs["sum"], np.full((3, 2), float(size)))


def test_bfloat16_is_float32_outside_the_model(tf, opened):
    """bfloat16 inputs and outputs are float32, at bfloat16's precision."""
    engine = opened(
        serving_default=(lambda x: {"y": x}, tf.TensorSpec([None], tf.bfloat16, "x"))
    )
    assert specs(engine.signatures["serving_default"]) == {
        "x": ("float32", ()),
        "y": ("float32", ()),
    }
    outputs = engine.run({"x": np.array([0.5, 1.01], np.float32)})
    assert outputs["y"].dtype == np.float32
    np.testing.assert_array_equal(outputs["y"], np.array([0.5, 1.0078125], np.float32))


def _same(x):
    return {"y": x}


def test_signature_of_an_unknown_dtype_is_skipped(tf, opened, caplog):
    """Numbers that clients can't send are no input; the log has a warning."""
    with caplog.at_level(logging.WARNING, "app"):
        engine = opened(
            serving_default=(_same, tf.TensorSpec([None], tf.float32, "x")),
            odd=(_same, tf.TensorSpec([None], tf.complex64, "x")),
        )
    assert list(engine.signatures) == ["serving_default"]
    (record,) = [each for each in caplog.records if each.name.startswith("app.")]
    assert record.getMessage() == (
        "signature odd: x: complex64 is not served; it is left out"
    )


def test_serving_default_that_can_not_be_batched_is_a_load_error(tf, opened):
    """No other signature answers in its place; the error has its reason alone."""
    batch = tf.TensorSpec([None], tf.float32, "x")
    with pytest.raises(ModelLoadError) as raised:
        opened(
            another=(_same, batch),
            other=(_same, tf.TensorSpec([], tf.float32, "x")),
            serving_default=(_same, tf.TensorSpec([None], tf.complex64, "x")),
        )
    assert str(raised.value) == (
        "signature serving_default: x: complex64 is not served"
    )
    assert list(opened(another=(_same, batch)).signatures) == ["another"]


def test_signature_with_a_scalar_output_runs_whole_tensors(tf, opened):
    """A single value for all rows is the answer to one request."""
    engine = opened(
        serving_default=(
            lambda x: {"mean": tf.reduce_mean(x), "name": tf.constant("m")},
            tf.TensorSpec([None], tf.float32, "x"),
        )
    )
    signature = engine.signatures["serving_default"]
    assert signature.batching_note() == "not batched: output mean is a single value"
    outputs = engine.run({"x": np.array([[1, 2, 6]], np.float32)})
    assert outputs["mean"].tolist() == [3.0]
    assert outputs["name"].tolist() == [b"m"]
    assert outputs["name"].dtype == object


@pytest.mark.parametrize("value", [2.5, [1, 2, 3], [[1, 2], [3, 4]]])
def test_unknown_rank_takes_any_tensor(tf, opened, value):
    """The whole tensor is the only row of a batch."""
    engine = opened(
        serving_default=(lambda x: {"y": 2 * x}, tf.TensorSpec(None, tf.float32, "x"))
    )
    x = np.array([value], np.float32)
    np.testing.assert_array_equal(engine.run({"x": x})["y"], 2 * x, strict=True)


def test_fixed_first_dimension_is_traced_for_that_size(tf, opened):
    """Outputs whose first dimension the graph leaves open have as many rows."""
    engine = opened(
        serving_default=(
            lambda x: {
                "y": tf.reduce_sum(x, axis=[1, 2]),
                "x": tf.boolean_mask(x, x[:, 0, 0, 0] >= 0),
            },
            tf.TensorSpec([4, None, None, 3], tf.uint8, "x"),
        )
    )
    signature = engine.signatures["serving_default"]
    assert signature.batch_sizes([1, 64]) == (4,)
    assert signature.inputs[0].shape == (None, None, 3)
    assert [spec.shape for spec in signature.outputs] == [(None, None, 3), (3,)]
    x = np.ones((4, 2, 5, 3), np.uint8)
    assert engine.run({"x": x})["y"].tolist() == [[10, 10, 10]] * 4


def test_model_without_signatures_is_a_load_error(tf, opened):
    """A SavedModel that was saved without signatures can't be served."""
    with pytest.raises(ModelLoadError, match="the model has no signatures"):
        opened()


def test_signature_names_of_a_tensorflow_1_model_are_kept(tf, tmp_path):
    """Names that are not Python identifiers are kept, in TensorFlow 1 models too."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        image = v1.placeholder(tf.float32, [None, 3])
        factor = v1.get_variable("factor", initializer=2.0, use_resource=True)
        session.run(v1.global_variables_initializer())
        info = v1.saved_model.build_tensor_info
        signature = v1.saved_model.signature_def_utils.build_signature_def(
            {"my image.1": info(image)}, {"scaled/by 2": info(image * factor)}, "p"
        )
        builder = v1.saved_model.Builder(str(tmp_path / "1"))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.SERVING], {"serving_default": signature}
        )
        builder.save()
    engine = open_engine(tmp_path / "1", Settings())
    assert specs(engine.signatures["serving_default"]) == {
        "my image.1": ("float32", (3,)),
        "scaled/by 2": ("float32", (3,)),
    }
    outputs = engine.run({"my image.1": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(outputs["scaled/by 2"], np.full((2, 3), 2.0))


def test_lookup_table_is_loaded_with_its_file(tf, tmp_path):
    """A lookup table's vocabulary file is part of the SavedModel."""
    words = tmp_path / "words.txt"
    words.write_text("zero\none\ntwo\n")
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(words),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        default_value=-1,
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "word")])
    def number(word):
        return {"number": module.table.lookup(word)}

    tf.saved_model.save(module, str(tmp_path / "1"), signatures=number)
    words.unlink()
    engine = open_engine(tmp_path / "1", Settings())
    outputs = engine.run({"word": np.array([b"two", b"ten", b"zero"], object)})
    assert outputs["number"].tolist() == [2, -1, 0]


def test_asset_can_be_read_at_any_time(tf, tmp_path):
    """A file of the SavedModel that a signature reads at each call is there."""
    words = tmp_path / "words.txt"
    words.write_text("tea")
    module = tf.Module()
    module.file = tf.saved_model.Asset(str(words))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def join(text):
        return {"joined": tf.strings.join([text, tf.io.read_file(module.file)])}

    tf.saved_model.save(module, str(tmp_path / "1"), signatures=join)
    engine = open_engine(tmp_path / "1", Settings())
    words.unlink()
    outputs = engine.run({"text": np.array([b"green ", b""], object)})
    assert outputs["joined"].tolist() == [b"green tea", b"tea"]


def test_optimizer_of_keras_2_is_not_restored(tf, keras, tmp_path):
    """A SavedModel that TensorFlow alone can't load for its optimizer is served."""
    known = legacy_optimizer_model(Saving(keras, tf, tmp_path / "1"))
    with pytest.raises(AttributeError, match="has no attribute 'add_slot'"):
        tf.saved_model.load(str(tmp_path / "1"))
    engine = open_engine(tmp_path / "1", Settings())
    outputs = engine.run({"row": np.array(known.rows)})
    np.testing.assert_allclose(outputs["score"], known.answers, rtol=1e-6)


def test_single_value_beside_rows_is_a_constant_of_basket_toml(tf, keras, tmp_path):
    """Without it the signature is not batched, and says what to write; then it is."""
    known = dropout_graph(Saving(keras, tf, tmp_path / "1"))
    engine = open_engine(tmp_path / "1", Settings())
    signature = engine.signatures["serving_default"]
    assert signature.batching_note() == (
        "not batched: input is_training is a single value; if all requests have the "
        "same one, basket.toml can fix it: [constants] is_training = false"
    )
    constants = json.dumps(tomllib.loads(CONSTANTS)["constants"])
    engine = open_engine(tmp_path / "1", Settings(constants=constants))
    signature = engine.signatures["serving_default"]
    assert signature.batching_note() == ""
    assert specs(signature) == {"row": ("float32", (3,)), "score": ("float32", (2,))}
    outputs = engine.run({"row": known.rows})
    np.testing.assert_allclose(outputs["score"], known.answers, rtol=1e-6)
    with pytest.raises(ModelLoadError, match="train: the model has no such input; it"):
        open_engine(tmp_path / "1", Settings(constants='{"train": false}'))


def test_model_is_restored_whole_where_nothing_can_be_written(
    tf, opened, monkeypatch, caplog
):
    """A full TMPDIR is a warning."""

    def fail(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    x = tf.TensorSpec([None], tf.float32, "x")
    engine = opened(serving_default=(lambda x: {"y": 2 * x}, x))
    assert engine.run({"x": np.float32([3])})["y"].tolist() == [6]
    assert "TMPDIR has no room for a part of a graph: No space left" in caplog.text


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("SimpleMLCreateModelResource", "of tensorflow-decision-forests: pip install"),
        ("IO>AudioResample", "write the line `import tensorflow_io` into a service.py"),
        ("SentencepieceOp", "`import tensorflow_text` into a service.py beside the"),
        ("Mine>Op", "no installed package has the operation 'Mine>Op': install"),
    ],
)
def test_operation_of_another_package_is_named_with_it(
    tf, keras, tmp_path, name, advice
):
    """The refusal says what to install and to import, and nothing of the machine."""
    with_operation(Saving(keras, tf, tmp_path / "1"), name)
    with pytest.raises(ModelLoadError) as raised:
        open_engine(tmp_path / "1", Settings())
    assert str(raised.value).startswith("saved_model.pb: ")
    assert advice in str(raised.value)
    assert "binary running on" not in str(raised.value)


@pytest.mark.parametrize("shape", [[2], None], ids=["known", "unknown"])
def test_variable_written_by_one_signature_is_read_by_another(
    tf, tmp_path, caplog, shape
):
    """A variable keeps its value when the next batch reuses the input memory.

    The log names the signature that writes.
    """
    caplog.set_level("INFO", "app")
    x = [tf.TensorSpec([None], tf.float32)]

    class Keeper(tf.Module):
        def __init__(self):
            super().__init__()
            self.kept = tf.Variable([0.0, 0.0], shape=tf.TensorShape(shape))

        @tf.function(input_signature=x)
        def keep(self, x):
            self.kept.assign(x)
            return {"y": x}

        @tf.function(input_signature=x)
        def add(self, x):
            return {"y": x + tf.reduce_sum(self.kept)}

    keeper = Keeper()
    signatures = {"serving_default": keeper.add, "keep": keeper.keep}
    tf.saved_model.save(keeper, str(tmp_path / "1"), signatures=signatures)
    engine = open_engine(tmp_path / "1", Settings())
    stack = BatchMemory()
    engine.run({"x": stack.put("x", [np.float32([1]), np.float32([2])])}, "keep")
    added = engine.run({"x": stack.put("x", [np.float32([10]), np.float32([20])])})
    assert added["y"].tolist() == [13, 23]
    assert "signature keep may change variables or tables" in caplog.text


def test_out_of_memory_is_distinguished_from_other_errors(tf, opened):
    """Out of memory has the number of rows, an invalid row the model's reason."""

    def use(x):
        tf.debugging.assert_less(x, 100.0)
        # A petabyte if a value is 5; random values, because zeros are not allocated.
        size = tf.where(tf.reduce_max(x) == 5, 1 << 48, 1)
        return {"y": x + 0 * tf.reduce_sum(tf.random.uniform([size]))}

    engine = opened(serving_default=(use, tf.TensorSpec([None], tf.float32, "x")))
    assert engine.run({"x": np.ones(2, np.float32)})["y"].tolist() == [1, 1]
    with pytest.raises(OutOfDeviceMemory, match="a batch of 2 rows does not fit"):
        engine.run({"x": np.full(2, 5, np.float32)})
    with pytest.raises(RefusedInput, match="assertion failed"):
        engine.run({"x": np.full(2, 500, np.float32)})
    assert engine.run({"x": np.ones(2, np.float32)})["y"].tolist() == [1, 1]


def _break_nothing(folder: Path) -> None:
    (folder / "saved_model.pb").write_bytes(b"")


def _break_file(folder: Path) -> None:
    (folder / "saved_model.pb").write_bytes(b"no protobuf")


def _break_variables(folder: Path) -> None:
    shutil.rmtree(folder / "variables")


@pytest.mark.parametrize("damage", [_break_nothing, _break_file, _break_variables])
def test_malformed_saved_model_is_a_load_error(tf, tmp_path, damage):
    """A SavedModel that TensorFlow can't read is one line without a path."""
    module = tf.Module()
    module.scale = tf.Variable(2.0)
    spec = tf.TensorSpec([None], tf.float32, "x")
    function = tf.function(lambda x: {"y": x * module.scale}, input_signature=[spec])
    folder = tmp_path / "1"
    tf.saved_model.save(module, str(folder), signatures=function)
    damage(folder)
    with pytest.raises(ModelLoadError) as raised:
        open_engine(folder, Settings())
    assert str(raised.value).startswith("saved_model.pb: ")
    assert str(tmp_path) not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["model.keras", "saved_model.pb"])
def test_close_frees_the_models_memory(tf, tmp_path, kind):
    """A model of 16 MiB that is opened 6 times takes the memory of two."""
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    row = keras.Input((1024,), name="row")
    model = keras.Model(row, keras.layers.Dense(4 * 1024)(row))
    if kind == "model.keras":
        (tmp_path / "1").mkdir()
        model.save(tmp_path / "1" / kind)
    else:
        model.export(str(tmp_path / "1"), verbose=False)
    del model, row
    closed = []

    def use():
        engine = open_engine(tmp_path / "1", Settings())
        assert engine.weight_bytes == 4 * 4 * (1024 * 1024 + 1024)
        for name, signature in engine.signatures.items():
            for rows in (1, 64):
                engine.run({s.name: s.blank(rows) for s in signature.inputs}, name)
        engine.close()
        engine.close()
        # close() must suffice: references to the engine may remain.
        closed.append(engine)
        gc.collect()
        give_back()

    for _ in range(2):
        use()
    before_mib = resident_mib(os.getpid())
    for _ in range(4):
        use()
    assert resident_mib(os.getpid()) <= before_mib * 1.15


def test_code_of_the_docs_makes_a_saved_model_of_a_frozen_graph(
    tf, tmp_path, monkeypatch
):
    """It is served in batches, and computes what the graph computes."""
    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(tf.float32, (None, 3), name="image")
        tf.multiply(image, 2.0, name="scores")
    (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(ROOT / "docs" / "other_files.md", "python")
    exec(code, {})
    engine = open_engine(tmp_path / "models" / "mine" / "1", Settings())
    ((name, signature),) = engine.signatures.items()
    assert name == "serving_default"
    assert not signature.limit_reason
    (given,) = signature.inputs
    found = engine.run({given.name: np.ones((2, 3), np.float32)})
    assert found["scores"].tolist() == [[2.0] * 3] * 2
