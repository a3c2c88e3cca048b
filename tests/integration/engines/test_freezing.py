"""Freezing of variables into constants, and inline execution of chains."""

import subprocess
import sys
from itertools import combinations
from statistics import median

import numpy as np
import pytest

from testing.server import ROOT
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture(scope="module", name="freezing")
def _freezing(tf):
    from app.engines.tensorflow import freezing  # noqa: PLC0415

    return freezing


def _scale(tf, variable):
    """Return a function of two outputs, whose names are not sorted."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def scale(x):
        return {"sum": x + variable, "product": x * variable}

    return scale


def _numbers(outputs):
    return {name: output.numpy().tolist() for name, output in outputs.items()}


def test_freezing_keeps_the_outputs(tf, freezing):
    """A frozen function has each output under its name, with the variables' values."""
    computes = freezing.freeze(_scale(tf, tf.Variable(3.0)))
    found = _numbers(computes(tf.constant([1.0, 2.0])))
    assert found == {"sum": [4.0, 5.0], "product": [3.0, 6.0]}


def test_freezing_copies_the_variables(tf, freezing):
    """Assigning a variable later does not change a frozen function."""
    variable = tf.Variable(3.0)
    computes = freezing.freeze(_scale(tf, variable))
    variable.assign(5.0)
    assert _numbers(computes(tf.constant([1.0])))["product"] == [3.0]


def test_freezing_leaves_functions_above_the_size_limit(tf, freezing, monkeypatch):
    """A function with more variable bytes than the limit is returned as it is."""
    monkeypatch.setattr(freezing, "_MAX_VARIABLE_BYTES", 3)
    function = _scale(tf, tf.Variable(3.0))
    assert freezing.freeze(function) is function
    monkeypatch.setattr(freezing, "_MAX_VARIABLE_BYTES", 4)
    assert freezing.freeze(function) is not function


@pytest.mark.parametrize("nested", [False, True], ids=["outside", "in a branch"])
def test_is_read_only_detects_an_assignment(tf, freezing, nested):
    """A function that counts its calls is not read-only, also in a branch."""
    calls = tf.Variable(0.0)

    def note():
        return calls.assign_add(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def count(x):
        if nested:
            return {"calls": x + tf.cond(tf.size(x) > 0, note, lambda: 0.0)}
        return {"calls": x + note()}

    count.get_concrete_function()
    assert not freezing.is_read_only(count)
    assert freezing.is_read_only(_scale(tf, calls))


def test_freezing_leaves_functions_with_lookup_tables(tf, freezing):
    """A function that looks words up goes on finding them."""
    words = tf.lookup.KeyValueTensorInitializer(["seven"], [7.0])
    table = tf.lookup.StaticHashTable(words, 0.0)
    weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def look_up(word):
        return {"number": table.lookup(word) * weight}

    computes = freezing.freeze(look_up)
    assert _numbers(computes(tf.constant(["seven", "six"])))["number"] == [14.0, 0.0]


def _chain(tf):
    """Return a function whose operations form a chain, beside shape computations."""
    weights = tf.Variable(tf.eye(4))

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 2], tf.float32)])
    def chain(x):
        flat = tf.reshape(x, [tf.shape(x)[0], -1])
        return {"scores": tf.nn.relu(flat @ weights)}

    return chain


def _fork(tf):
    """Return a function with two operations that can run in parallel."""
    weights = tf.Variable(tf.eye(4))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def fork(x):
        return {"scores": tf.nn.relu(x @ weights) + tf.nn.tanh(x @ weights)}

    return fork


def _two_inputs(tf):
    """Return a function of two independent chains."""
    weight = tf.Variable(2.0)
    spec = tf.TensorSpec([None], tf.float32)

    @tf.function(input_signature=[spec, spec])
    def two(x, y):
        return {"x": x * weight, "y": y * weight}

    return two


def _nested(tf):
    """Return a chain, one operation of which calls a function that forks."""
    weight = tf.Variable(2.0)

    def body(x):
        return tf.nn.relu(x * weight) + tf.nn.tanh(x * weight)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def nested(x):
        return {"y": tf.map_fn(body, x) + 1.0}

    return nested


def test_chain_runs_inline(tf, freezing):
    """A graph without parallel operations runs in the calling thread."""
    computes = freezing.freeze(_chain(tf))
    assert isinstance(computes, freezing.inline.InlineFunction)
    (found,) = _numbers(computes(tf.constant([[[1.0, -2.0], [3.0, -4.0]]]))).values()
    assert found == [[1.0, 0.0, 3.0, 0.0]]


@pytest.mark.parametrize("function", [_fork, _two_inputs, _nested])
def test_parallel_operations_do_not_run_inline(tf, freezing, function):
    """A graph that is not one chain is left to TensorFlow's threads."""
    computes = freezing.freeze(function(tf))
    assert not isinstance(computes, freezing.inline.InlineFunction)


def test_chain_does_not_run_inline_with_a_gpu(tf, freezing, monkeypatch):
    """With a visible GPU, a chain is left to TensorFlow's threads as well."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["a GPU"])
    assert not isinstance(freezing.freeze(_chain(tf)), freezing.inline.InlineFunction)


def test_inline_chain_raises_tensorflow_errors(tf, freezing):
    """Rows of a wrong shape are an InvalidArgumentError."""
    computes = freezing.freeze(_chain(tf))
    with pytest.raises(tf.errors.InvalidArgumentError):
        computes(tf.ones([1, 3, 3]))


@pytest.mark.parametrize("first", ["relu", "negative", "sigmoid"])
def test_inline_chain_does_not_write_to_its_input(tf, freezing, first):
    """Nothing is computed in place, even in an aligned array."""
    weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32)])
    def chain(x):
        return {"y": getattr(tf.math, first, tf.nn.relu)(x) * weight}

    memory = np.empty((65, 8, 2), np.float32)
    begin = -memory.ctypes.data % 64 // memory.itemsize
    rows = memory.reshape(-1)[begin : begin + 512].reshape(64, 8)
    rows[:] = -np.arange(512).reshape(64, 8)
    kept = rows.copy()
    computes = freezing.freeze(chain)
    assert isinstance(computes, freezing.inline.InlineFunction)
    computes(rows)
    assert np.array_equal(rows, kept)


# Prints how many MiB a process holds after each of ten engines, which are closed.
CLOSES = """
import gc, os
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, keras
from testing.memory import resident_mib

row = keras.Input((1024,))
first = keras.layers.Dense(2048, activation="relu")(row)
model = keras.Model(row, keras.layers.Dense(1024)(first))

def run(engine):
    (spec,) = engine.signatures[DEFAULT_SIGNATURE].inputs
    (scores,) = engine.run({spec.name: spec.blank(1)}).values()
    assert scores.shape == (1, 1024)

stays = KerasTensorFlowEngine(model)
for _ in range(10):
    goes = KerasTensorFlowEngine(model)
    run(goes)
    goes.close()
    del goes
    gc.collect()
    run(stays)
    print(resident_mib(os.getpid()))
"""


def test_closed_engine_frees_its_inline_chain():
    """Closed engines free their memory, and open engines still compute."""
    # In a process of its own, as other tests' memory comes and goes, too.
    printed = subprocess.check_output([sys.executable, "-c", CLOSES], cwd=ROOT)
    held_mib = [float(line) for line in printed.split()]
    # Each has 16 MiB of weights, and a leak would add them each time. Memory that is
    # freed a little later goes up and down, which the median slope (Theil and Sen's
    # estimator) does not mind.
    slopes = [
        (later_mib - earlier_mib) / (later - earlier)
        for (earlier, earlier_mib), (later, later_mib) in combinations(
            enumerate(held_mib), 2
        )
    ]
    assert len(held_mib) == 10
    assert median(slopes) < 8


def test_freezing_of_captured_tensors(tf, freezing):
    """A model that captured tensors beside its variables is frozen."""
    weight, mean = tf.Variable(3.0), tf.constant([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def normalize(x):
        return {"y": (x - mean) * weight}

    computes = freezing.freeze(normalize)
    assert computes is not normalize
    assert _numbers(computes(tf.constant([[2.0, 4.0]])))["y"] == [[3.0, 6.0]]


def test_freezing_logs_nothing_about_tables_of_other_models(
    tf, keras, freezing, monkeypatch
):
    """TensorFlow warns of each table of the process when it exports a graph."""
    warnings = []
    monkeypatch.setattr(tf.get_logger(), "handle", warnings.append)
    keras.layers.StringLookup(vocabulary=["apple"])
    computes = freezing.freeze(_scale(tf, tf.Variable(3.0)))
    assert _numbers(computes(tf.constant([1.0])))["sum"] == [4.0]
    assert [each.getMessage() for each in warnings] == []


def test_failed_freezing_keeps_the_variables(tf, freezing, monkeypatch, caplog):
    """If one of TensorFlow's passes fails, the function is returned as it is."""

    def fail(_):
        raise ValueError("no such node")

    monkeypatch.setattr(freezing.folding, "fold", fail)
    function = _scale(tf, tf.Variable(3.0))
    with caplog.at_level("INFO"):
        assert freezing.freeze(function) is function
    assert "no such node" in caplog.text
