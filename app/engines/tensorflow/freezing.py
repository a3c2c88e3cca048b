"""Turns a traced function's variables into constants, so that they can be folded.

docs/decisions.md (Freezing) has the figures.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from app.engines.tensorflow import folding, inline, tensorflow_private
from app.engines.tensorflow.tensorflow_private import ConcreteFunction, NodeDef

# TensorFlow holds constants several times while it optimizes a graph, and a graph is
# limited to 2 GiB.
_MAX_VARIABLE_BYTES = 256 << 20
# Operations that read variables or other resources and change none.
_READ_OPS = (
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
    *("LookupTableFindV2", "LookupTableSizeV2"),
)
# Operations that call functions of the graph's own library.
_CALL_OPS = (
    *("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf"),
    *("While", "StatelessWhile", "Case", "StatelessCase"),
)

Computes = Callable[..., dict[str, tf.Tensor]]

_log = logging.getLogger(__name__)


def freeze(function: tf.types.experimental.PolymorphicFunction) -> Computes:
    """Return the same computation with constants in place of variables.

    `function` has one trace, is read-only, and returns tensors by name. It is returned
    as it is if it has more than 256 MiB of variables, uses lookup tables, or one of
    TensorFlow's passes fails.
    """
    concrete = function.get_concrete_function()
    if not _is_freezable(concrete):
        return function  # type: ignore[no-any-return]
    # All graphs share it: tables of other models would be warnings in the log.
    concrete.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    try:
        constant = folding.fold(tensorflow_private.variables_to_constants(concrete))
    except Exception:  # TensorFlow raises whatever its many passes raise
        _log.info("a model keeps its variables: it can't be frozen", exc_info=True)
        return function  # type: ignore[no-any-return]
    # TensorFlow flattens a dict in the order of its sorted keys.
    names = sorted(concrete.structured_outputs)
    if inline.is_chain(constant):
        return inline.InlineFunction(constant, names)
    return tensorflow_private.with_output_names(constant, names)


def is_read_only(function: tf.types.experimental.PolymorphicFunction) -> bool:
    """Return whether calls of the function, which has one trace, change no state.

    An operation that is not known to be harmless counts as a change.
    """
    return all(map(_is_read_only, _nodes(function.get_concrete_function())))


def variable_bytes(variables: Iterable[tf.Variable]) -> int:
    """Return the bytes of distinct variables; one of unknown shape counts as 0."""
    unique = {id(each.handle): each for each in variables}.values()
    return sum((each.shape.num_elements() or 0) * each.dtype.size for each in unique)


def _is_freezable(concrete: ConcreteFunction) -> bool:
    handles = {id(variable.handle) for variable in concrete.variables}
    only_variables = all(
        id(each) in handles or each.dtype not in (tf.resource, tf.variant)
        for each in concrete.captured_inputs
    )
    known = all(each.shape.is_fully_defined() for each in concrete.variables)
    size = variable_bytes(concrete.variables)
    return 0 < size <= _MAX_VARIABLE_BYTES and only_variables and known


def _is_read_only(node: NodeDef) -> bool:
    definition = tensorflow_private.op_definition(node.op)
    if definition is None:
        return False
    takes_state = any(
        each.is_ref or each.type == tf.resource.as_datatype_enum
        for each in definition.input_arg
    )
    calls = inline.calls_functions(node)
    return (not takes_state or node.op in _READ_OPS) and (
        not calls or node.op in _CALL_OPS
    )


def _nodes(concrete: ConcreteFunction) -> Iterator[NodeDef]:
    graph = concrete.graph.as_graph_def()
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
