"""All of TensorFlow's private API that Basket uses, each name behind one function.

ops.EagerTensor, context.context().device_name
    A tensor in an array's own memory: tf.constant copies the array.
context.context().clear_kernel_cache
    TensorFlow frees the memory of cached kernels in no other way.
convert_to_constants.convert_variables_to_constants_v2
    Freezing: tf.compat.v1 has it for sessions only.
tf_optimizer.OptimizeGraph
    Constant folding as a step of its own, before Basket's folding.
wrap_function.function_from_graph_def
    A function that computes an edited GraphDef.
op_def_registry.get
    The declared inputs of an operation, to tell whether it takes a resource.
ConcreteFunction.inference_fn.call_flat
    A call without binding arguments, which takes longer than a small model.
saved_model_pb2.SavedModel
    A SavedModel's SignatureDefs, as a loaded function may rename its inputs, and its
    graph of objects, of which serving needs a part.

tests/integration/engines/test_tensorflow_private.py fails by name when one moves.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context, wrap_function
from tensorflow.python.framework import convert_to_constants, op_def_registry, ops
from tensorflow.python.grappler import tf_optimizer

from app.engines.base import Array

ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction
# Protocol buffers, which have no types.
GraphDef: TypeAlias = Any
NodeDef: TypeAlias = Any
OpDef: TypeAlias = Any
SavedModel: TypeAlias = Any
SignatureDef: TypeAlias = Any
MetaGraphDef: TypeAlias = Any


def tensor_view(array: Array) -> tf.Tensor:
    """Return a tensor in the array's own memory, or a copy of an unaligned array.

    TensorFlow must be initialized, as it is once a function was traced.
    """
    return ops.EagerTensor(array, context.context().device_name, None)


def clear_kernel_cache() -> None:
    """Free all cached kernels of the process; the next calls prepare their own."""
    context.context().clear_kernel_cache()


def variables_to_constants(function: ConcreteFunction) -> ConcreteFunction:
    """Return the function with each variable replaced by its value.

    Raises:
        Exception: whatever TensorFlow's passes raise.
    """
    return convert_to_constants.convert_variables_to_constants_v2(function)


def optimize_graph(config: Any, meta_graph: Any) -> GraphDef:
    """Run Grappler with the optimizers of a ConfigProto on a MetaGraphDef."""
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def function_from_graph_def(
    graph_def: GraphDef, inputs: Sequence[str], outputs: Sequence[str]
) -> ConcreteFunction:
    """Return a function that computes a GraphDef between tensors named `node:0`."""
    return wrap_function.function_from_graph_def(graph_def, inputs, outputs)


def op_definition(op_type: str) -> OpDef | None:
    """Return the OpDef of a registered operation, or None."""
    return op_def_registry.get(op_type)


def with_output_names(
    function: ConcreteFunction, names: Sequence[str]
) -> Callable[..., dict[str, tf.Tensor]]:
    """Return a callable from positional tensors to the outputs by name.

    Called directly, the function first tries another calling convention, fails, and
    formats the whole batch into the text of the error that it swallows.
    """

    def compute(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = function.inference_fn.call_flat(*inputs)
        return dict(zip(names, outputs, strict=True))

    return compute


def read_saved_model(file: Path) -> SavedModel:
    """Return the content of a saved_model.pb.

    Raises:
        Exception: the file is not a SavedModel.
    """
    return saved_model_pb2.SavedModel.FromString(file.read_bytes())
