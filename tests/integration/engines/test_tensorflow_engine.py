"""Memory of batches on the way into and out of TensorFlow."""

import numpy as np
import pytest

from app.batching.batch_memory import BatchMemory
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture(name="run")
def _run():
    """Compute one output of one input of three float32 with TensorFlow."""
    # Not at the top: tests that are not run must not import TensorFlow.
    from app.engines.tensorflow.engine import (  # noqa: PLC0415
        Function,
        TensorFlowEngine,
    )

    signature = Signature(
        (TensorSpec("x", np.dtype("float32"), (3,)),),
        (TensorSpec("y", np.dtype("float32"), (3,)),),
    )

    def run(call, rows):
        functions = {DEFAULT_SIGNATURE: Function(signature, call)}
        engine = TensorFlowEngine(functions, weight_bytes=0)
        return engine.run({"x": rows})["y"]

    return run


def _stacked(*values):
    return BatchMemory().put(
        "x", [np.full((1, 3), value, np.float32) for value in values]
    )


def test_aligned_batch_is_not_copied(run):
    """An output that is an input shares the memory of the stacked batch."""
    rows = _stacked(1, 2)
    assert np.shares_memory(run(lambda x: [x], rows), rows)


def test_computed_output_does_not_share_the_batch_memory(run):
    """An output stays the same when the next batch overwrites the memory."""
    rows = _stacked(1, 2)
    output = run(lambda x: [x + 1], rows)
    rows[:] = 7
    assert output.tolist() == [[2, 2, 2], [3, 3, 3]]


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(7, dtype=np.float32)[1:].reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(3, 2).T,
        np.frombuffer(bytes(24), np.float32).reshape(2, 3),
    ],
    ids=["unaligned", "in another order", "read only"],
)
def test_unaligned_strided_or_read_only_array_is_accepted(run, rows):
    """Arrays that TensorFlow can't use in place give the same output."""
    assert run(lambda x: [x * 2], rows).tolist() == (rows * 2).tolist()


def _draw(tf, weight, generator, x):
    return x * weight + 0.0 * generator.normal(tf.shape(x))


def _write_a_part(tf, weight, generator, x):
    weight[1:2].assign([3.0])
    return x * weight


def _ask_for_a_shape(tf, weight, generator, x):
    (size,) = tf.unstack(tf.raw_ops.VariableShape(input=weight.handle))
    return x * tf.cast(size, tf.float32)


def _read_in_a_pipeline(tf, weight, generator, x):
    rows = tf.data.Dataset.range(2).map(lambda n: weight * tf.cast(n, tf.float32))
    return x * rows.reduce(tf.zeros([3]), lambda one, other: one + other)


@pytest.mark.parametrize(
    "compute", [_draw, _write_a_part, _ask_for_a_shape, _read_in_a_pipeline]
)
def test_variables_that_cannot_be_frozen_are_served(tf, run, compute):
    """Variables in forms that can't become constants give the traced outputs."""
    weight = tf.Variable([3.0, 3.0, 3.0])
    generator = tf.random.Generator.from_seed(1)
    output = run(lambda x: [compute(tf, weight, generator, x)], _stacked(1, 2))
    assert output.tolist() == [[3, 3, 3], [6, 6, 6]]
