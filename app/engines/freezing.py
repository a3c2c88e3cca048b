"""Turns a traced function's variables into constants, so that they can be folded.

`python -m bench.freezing` measures what that saves.
"""

from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2,
)

from app.engines import folding, inline

# Constants stand in the graph several times while TensorFlow works on it, and a graph
# ends at 2 GiB.
_LARGEST_BYTES = 256 << 20
# What an operation is called that changes what outlives the call: variables, queues.
_WRITES = (
    *("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply"),
    "QueueEnqueue",
)

Computes = Callable[..., dict[str, tf.Tensor]]


def frozen(function: tf.types.experimental.PolymorphicFunction) -> Computes:
    """The same computation with constants, where that can be and is worth it.

    `function` has one trace and gives tensors by name. It comes back as it is where it
    has more than 256 MiB of variables, or uses lookup tables. No function of a model
    that has one which `writes` may be frozen.
    """
    concrete = function.get_concrete_function()
    if not _may_be_frozen(concrete):
        return function  # type: ignore[no-any-return]
    constant = folding.folded(convert_variables_to_constants_v2(concrete))
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


def writes(function: tf.types.experimental.PolymorphicFunction) -> bool:
    """Whether a call of the function, which has one trace, may change another's."""
    operations = _operations(function.get_concrete_function())
    return any(name.startswith(_WRITES) for name in operations)


def size_bytes(variables: Iterable[tf.Variable]) -> int:
    """The size of the variables, each counted once, as far as their shape is known."""
    unique = {id(each.handle): each for each in variables}.values()
    return sum((each.shape.num_elements() or 0) * each.dtype.size for each in unique)


def _may_be_frozen(concrete: tf.types.experimental.ConcreteFunction) -> bool:
    handles = {id(variable.handle) for variable in concrete.variables}
    only_variables = all(id(each) in handles for each in concrete.captured_inputs)
    known = all(each.shape.is_fully_defined() for each in concrete.variables)
    size = size_bytes(concrete.variables)
    return 0 < size <= _LARGEST_BYTES and only_variables and known


def _operations(concrete: tf.types.experimental.ConcreteFunction) -> Iterator[str]:
    graph = concrete.graph.as_graph_def()
    yield from (node.op for node in graph.node)
    for function in graph.library.function:
        yield from (node.op for node in function.node_def)
