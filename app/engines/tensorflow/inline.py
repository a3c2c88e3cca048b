"""Computes a graph in the calling thread, where other threads would only be waited for.

TensorFlow hands the operations of a function to threads of its own, so that those run
side by side which need not wait for each other. Where each waits for the one before,
that only takes time: for a small model several times what it computes.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

# Shapes are reckoned in it, beside what is computed.
_OF_SHAPES = tf.int32


class Inline:
    """A graph of constants, called as a single operation. `close` ends it."""

    def __init__(
        self, function: tf.types.experimental.ConcreteFunction, names: list[str]
    ) -> None:
        """Store the function, and the names of its outputs in their order."""
        self._function = function
        self._names = names
        self._dtypes = [output.dtype for output in function.outputs]

    def __call__(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the outputs by name."""
        outputs = tf.raw_ops.PartitionedCall(
            args=inputs, Tout=self._dtypes, f=self._function
        )
        return dict(zip(self._names, outputs, strict=True))

    def close(self) -> None:
        """Free what TensorFlow prepared for these calls.

        It keeps that by the operation, not by the function, so that it does not go with
        the function. As with Keras's clear_session, other functions are prepared anew
        when they are called next.
        """
        context.context().clear_kernel_cache()


def is_worth_it(function: tf.types.experimental.ConcreteFunction) -> bool:
    """Say whether no two operations of a graph of constants may run side by side.

    Nor may any be for a GPU, which gets its operations from a thread of TensorFlow's.
    """
    graph = function.graph
    starts = [each for each in graph.get_operations() if each.type == "Placeholder"]
    if len(starts) != 1 or tf.config.list_physical_devices("GPU"):
        return False
    (at,) = starts
    # No longer than the graph, should there be a way round in it.
    for _ in graph.get_operations():
        following = _following(at)
        if not following:
            return True
        at = following.pop()
        if following or _calls_functions(at):
            return False
    return False


def _following(operation: tf.Operation) -> set[Any]:
    """The operations that compute with what this one gives, but for shapes."""
    return {
        consumer
        for output in operation.outputs
        for consumer in output.consumers()
        if any(each.dtype != _OF_SHAPES for each in consumer.outputs)
    }


def _calls_functions(operation: tf.Operation) -> bool:
    attributes = operation.node_def.attr.values()
    return any(each.HasField("func") or each.list.func for each in attributes)
