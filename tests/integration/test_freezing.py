"""Functions whose variables become constants, and those that keep them."""

import pytest

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras warn of their own ageing parts.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", name="tf")
def _tf():
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.engines.tensorflow_engine import tf  # noqa: PLC0415

    return tf


@pytest.fixture(scope="module", name="freezing")
def _freezing(tf):
    from app.engines import freezing  # noqa: PLC0415

    return freezing


def _scale(tf, variable):
    """A function of two outputs, whose names are not in their order."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def scale(x):
        return {"sum": x + variable, "product": x * variable}

    return scale


def _numbers(outputs):
    return {name: output.numpy().tolist() for name, output in outputs.items()}


def test_a_frozen_function_computes_the_same(tf, freezing):
    """Constants give each output under its name, with the variables' values."""
    computes = freezing.frozen(_scale(tf, tf.Variable(3.0)))
    found = _numbers(computes(tf.constant([1.0, 2.0])))
    assert found == {"sum": [4.0, 5.0], "product": [3.0, 6.0]}


def test_a_frozen_function_lets_go_of_its_variables(tf, freezing):
    """What becomes of a variable later is nothing to a frozen function."""
    variable = tf.Variable(3.0)
    computes = freezing.frozen(_scale(tf, variable))
    variable.assign(5.0)
    assert _numbers(computes(tf.constant([1.0])))["product"] == [3.0]


def test_a_large_function_keeps_its_variables(tf, freezing, monkeypatch):
    """Above the limit a function stays as it is."""
    monkeypatch.setattr(freezing, "_LARGEST_BYTES", 3)
    function = _scale(tf, tf.Variable(3.0))
    assert freezing.frozen(function) is function
    monkeypatch.setattr(freezing, "_LARGEST_BYTES", 4)
    assert freezing.frozen(function) is not function


@pytest.mark.parametrize("nested", [False, True], ids=["outside", "in a branch"])
def test_a_function_that_writes_keeps_its_variables(tf, freezing, nested):
    """A function that counts its calls goes on counting."""
    calls = tf.Variable(0.0)

    def note():
        return calls.assign_add(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def count(x):
        if nested:
            return {"calls": x + tf.cond(tf.size(x) > 0, note, lambda: 0.0)}
        return {"calls": x + note()}

    computes = freezing.frozen(count)
    found = [_numbers(computes(tf.constant([0.0])))["calls"] for _ in range(3)]
    assert found == [[1.0], [2.0], [3.0]]


def test_a_function_with_a_table_keeps_it(tf, freezing):
    """A function that looks words up goes on finding them."""
    words = tf.lookup.KeyValueTensorInitializer(["seven"], [7.0])
    table = tf.lookup.StaticHashTable(words, 0.0)
    weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def look_up(word):
        return {"number": table.lookup(word) * weight}

    computes = freezing.frozen(look_up)
    assert _numbers(computes(tf.constant(["seven", "six"])))["number"] == [14.0, 0.0]
