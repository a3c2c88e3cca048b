"""Turns a traced function's variables into constants, so that they can be folded.

`python -m bench.freezing` measures what that saves.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2,
)

from app.engines.tensorflow import folding, inline

# Constants stand in the graph several times while TensorFlow works on it, and a graph
# ends at 2 GiB.
_LARGEST_BYTES = 256 << 20
# Of the operations on variables and other resources, those that change none.
_READS = (
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
    *("LookupTableFindV2", "LookupTableSizeV2"),
)
# Of the operations that call functions, those that freezing looks into.
_CALLS = (
    *("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf"),
    *("While", "StatelessWhile", "Case", "StatelessCase"),
)

Computes = Callable[..., dict[str, tf.Tensor]]
# The protocol buffers have no types.
_NodeDef: TypeAlias = Any

_log = logging.getLogger(__name__)


def frozen(function: tf.types.experimental.PolymorphicFunction) -> Computes:
    """The same computation with constants, where that can be and is worth it.

    `function` has one trace, only reads, and gives tensors by name. It comes back as it
    is where it has more than 256 MiB of variables, or uses lookup tables.
    """
    concrete = function.get_concrete_function()
    if not _may_be_frozen(concrete):
        return function  # type: ignore[no-any-return]
    try:
        constant = folding.folded(convert_variables_to_constants_v2(concrete))
    except Exception:  # TensorFlow raises whatever its many passes raise
        _log.info("a model keeps its variables: it can't be frozen", exc_info=True)
        return function  # type: ignore[no-any-return]
    # TensorFlow flattens a dict in the order of its sorted keys.
    names = sorted(concrete.structured_outputs)
    if inline.is_worth_it(constant):
        return inline.Inline(constant, names)

    # Called itself, `constant` first tries another convention, fails, and writes the
    # whole batch into the text of the error that it swallows; a tf.function around it
    # takes longer to bind its arguments than a small model does to compute.
    def compute(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = constant.inference_fn.call_flat(*inputs)
        return dict(zip(names, outputs, strict=True))

    return compute


def only_reads(function: tf.types.experimental.PolymorphicFunction) -> bool:
    """Whether calls of the function, which has one trace, leave all as it is.

    What a model does to its own state is read off its operations: no is the answer
    where they may be more than is known here.
    """
    return all(map(_only_reads, _nodes(function.get_concrete_function())))


def size_bytes(variables: Iterable[tf.Variable]) -> int:
    """The size of the variables, each counted once, as far as their shape is known."""
    unique = {id(each.handle): each for each in variables}.values()
    return sum((each.shape.num_elements() or 0) * each.dtype.size for each in unique)


def _may_be_frozen(concrete: tf.types.experimental.ConcreteFunction) -> bool:
    handles = {id(variable.handle) for variable in concrete.variables}
    only_variables = all(
        id(each) in handles or each.dtype not in (tf.resource, tf.variant)
        for each in concrete.captured_inputs
    )
    known = all(each.shape.is_fully_defined() for each in concrete.variables)
    size = size_bytes(concrete.variables)
    return 0 < size <= _LARGEST_BYTES and only_variables and known


def _only_reads(node: _NodeDef) -> bool:
    definition = op_def_registry.get(node.op)
    if definition is None:
        return False
    takes_state = any(
        each.is_ref or each.type == types_pb2.DT_RESOURCE
        for each in definition.input_arg
    )
    calls = any(each.HasField("func") or each.list.func for each in node.attr.values())
    return (not takes_state or node.op in _READS) and (not calls or node.op in _CALLS)


def _nodes(concrete: tf.types.experimental.ConcreteFunction) -> Iterator[_NodeDef]:
    graph = concrete.graph.as_graph_def()
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
