"""Runs a graph in the calling thread when none of it can run in parallel.

TensorFlow runs the operations of a function in its own thread pool. In a chain, where
each operation waits for the one before, the hand-over between threads takes several
times what a small model computes.
"""

import tensorflow as tf

from app.engines.tensorflow import tensorflow_private
from app.engines.tensorflow.tensorflow_private import ConcreteFunction, NodeDef

# The dtype of shape computations, which run beside the chain.
_SHAPE_DTYPE = tf.int32


class InlineFunction:
    """A graph of constants, called as a single operation until it is closed."""

    def __init__(self, function: ConcreteFunction, names: list[str]) -> None:
        """Store the function, and the names of its outputs in their order."""
        self._function = function
        self._names = names
        self._dtypes = [output.dtype for output in function.outputs]

    def __call__(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs by name."""
        outputs = tf.raw_ops.PartitionedCall(
            args=inputs, Tout=self._dtypes, f=self._function
        )
        return dict(zip(self._names, outputs, strict=True))

    def close(self) -> None:
        """Free the kernels that TensorFlow caches for these calls.

        It caches them by operation, so they outlive the function. As with Keras's
        clear_session, other functions prepare theirs anew with their next call.
        """
        tensorflow_private.clear_kernel_cache()


def is_chain(function: ConcreteFunction) -> bool:
    """Return whether no two operations of a graph of constants can run in parallel.

    False with a GPU in sight: its operations are queued by a thread of TensorFlow's.
    """
    graph = function.graph
    starts = [each for each in graph.get_operations() if each.type == "Placeholder"]
    if len(starts) != 1 or tf.config.list_physical_devices("GPU"):
        return False
    (at,) = starts
    # At most as many steps as operations, in case the graph has a cycle.
    for _ in graph.get_operations():
        consumers = _consumers(at)
        if not consumers:
            return True
        at = consumers.pop()
        if consumers or calls_functions(at.node_def):
            return False
    return False


def calls_functions(node: NodeDef) -> bool:
    """Return whether an attribute of the operation is a function."""
    return any(each.HasField("func") or each.list.func for each in node.attr.values())


def _consumers(operation: tf.Operation) -> set[tf.Operation]:
    """Return the consumers of an operation's outputs, except shape computations."""
    return {
        consumer
        for output in operation.outputs
        for consumer in output.consumers()
        if any(each.dtype != _SHAPE_DTYPE for each in consumer.outputs)
    }
