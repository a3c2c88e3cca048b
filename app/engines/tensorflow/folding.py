"""Folds per-channel operations that follow a convolution into its weights.

Batch normalization, and a bias as Keras adds it, are passes over the whole output of a
convolution. With new weights and one BiasAdd, TensorFlow fuses them, and the activation
behind them, into the convolution. The same holds for an explicit padding that "SAME"
would do. docs/decisions.md (Freezing) has the figures.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from app.engines.tensorflow import tensorflow_private
from app.engines.tensorflow.tensorflow_private import (
    ConcreteFunction,
    GraphDef,
    NodeDef,
)

_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")

_Array: TypeAlias = npt.NDArray[np.float32]
# A factor and a summand for each channel.
_Affine: TypeAlias = tuple[_Array, _Array]


def fold(function: ConcreteFunction) -> ConcreteFunction:
    """Return the same computation with fewer passes over its data.

    `function` is a graph of constants. Outputs differ by float32 rounding. A graph
    without float32 convolutions in NHWC is returned as it is.
    """
    if not any(map(_is_convolution, function.graph.get_operations())):
        return function
    inputs = [each.name for each in function.inputs]
    outputs = [each.name for each in function.outputs]
    graph_def = _fold_constants(function.graph, outputs)
    # Grappler changes functions but keeps their names, under which TensorFlow has
    # registered the originals.
    graph_def.library.CopyFrom(function.graph.as_graph_def().library)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    nodes = {node.name: node for node in graph_def.node}
    for convolution in filter(_is_convolution, graph.get_operations()):
        weights = tf.get_static_value(convolution.inputs[1])
        found = {} if weights is None else dict(_affine_chain(convolution, outputs))
        if found:
            *_, last = found
            factor, bias = _compose(found.values())
            beside = convolution.inputs[1].op
            bias_node = _constant(f"{convolution.name}/folded_bias", bias, beside)
            graph_def.node.append(bias_node)
            if np.any(factor != 1):
                weights = weights * factor.reshape(_channel_axes(convolution))
                name = f"{convolution.name}/folded_weights"
                graph_def.node.append(_constant(name, weights, beside))
                nodes[convolution.name].input[1] = name
            _replace_by_bias_add(nodes[last.name], convolution.name, bias_node.name)
        padding = convolution.inputs[0].op
        if padding.type == "Pad" and _equals_same_padding(padding, convolution):
            nodes[convolution.name].input[0] = padding.inputs[0].name
            nodes[convolution.name].attr["padding"].s = b"SAME"
    return tensorflow_private.function_from_graph_def(graph_def, inputs, outputs)


def _is_convolution(operation: tf.Operation) -> bool:
    return (
        operation.type in _CONVOLUTIONS
        and operation.outputs[0].dtype == tf.float32
        and _is_channels_last(operation)
    )


def _is_channels_last(operation: tf.Operation) -> bool:
    return bool(operation.get_attr("data_format") == b"NHWC")


def _fold_constants(graph: tf.Graph, kept: Collection[str]) -> GraphDef:
    """Return the graph with constants for all that depends on no input.

    The tensors named in `kept` stay available.
    """
    meta_graph = tf.compat.v1.train.export_meta_graph(
        graph_def=graph.as_graph_def(), graph=graph
    )
    # Grappler looks under this name for the tensors to keep.
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs as well
    options.optimizers.extend(["constfold", "dependency"])
    return tensorflow_private.optimize_graph(config, meta_graph)


def _affine_chain(
    convolution: tf.Operation, outputs: Collection[str]
) -> Iterator[tuple[tf.Operation, _Affine]]:
    """Yield the operations to fold, in order.

    The chain ends before a tensor that is an output or has a second consumer.
    """
    (tensor,) = convolution.outputs
    while tensor.name not in outputs and len(tensor.consumers()) == 1:
        (operation,) = tensor.consumers()
        affine = _affine(operation, tensor)
        if affine is None:
            return
        yield operation, affine
        tensor = operation.outputs[0]


def _affine(operation: tf.Operation, tensor: tf.Tensor) -> _Affine | None:
    """Return an operation as a factor and a summand per channel, or None."""
    channels = tensor.shape[-1]
    others = [each for each in operation.inputs if each is not tensor]
    found = [_per_channel(each, channels) for each in others]
    constants = [each for each in found if each is not None]
    if len(constants) < len(others):
        return None
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    match operation.type, constants:
        case "Mul", [factor]:
            return factor, zeros
        case "AddV2", [summand]:
            return ones, summand
        case "BiasAdd", [summand] if _is_channels_last(operation):
            return ones, summand
        case "FusedBatchNormV3", [scale, offset, mean, variance]:
            if _is_for_inference(operation):
                factor = scale / np.sqrt(variance + operation.get_attr("epsilon"))
                return factor, offset - mean * factor
    return None


def _per_channel(tensor: tf.Tensor, channels: int) -> _Array | None:
    """Return a constant's value for each channel, or None if it has more values."""
    value = tf.get_static_value(tensor)
    if value is None:
        return None
    try:
        return np.broadcast_to(value, (1, 1, 1, channels)).ravel()
    except ValueError:
        return None


def _is_for_inference(normalization: tf.Operation) -> bool:
    """Return whether it uses given moments, and nothing consumes its own."""
    _, *moments = normalization.outputs
    return (
        _is_channels_last(normalization)
        and not normalization.get_attr("is_training")
        and not any(each.consumers() for each in moments)
    )


def _compose(steps: Iterable[_Affine]) -> _Affine:
    """Return the one step that equals all steps in order."""
    (factor, summand), *others = steps
    for times, plus in others:
        factor, summand = factor * times, summand * times + plus
    return factor, summand


def _channel_axes(convolution: tf.Operation) -> list[int]:
    """Return the sizes of the last axes of its weights, which make up its channels.

    A depthwise convolution has a channel for each pair of its last two axes.
    """
    is_depthwise = convolution.type == "DepthwiseConv2dNative"
    sizes: list[int] = convolution.inputs[1].shape.as_list()
    return sizes[2:] if is_depthwise else sizes[3:]


def _constant(name: str, value: _Array, beside: tf.Operation) -> NodeDef:
    """Return a constant in the same loop frame as the operation `beside`."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.input.extend(f"^{each.name}" for each in beside.control_inputs)
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return node


def _replace_by_bias_add(node: NodeDef, convolution: str, bias: str) -> None:
    """Turn a node into a BiasAdd; it keeps its name and so its consumers."""
    node.op = "BiasAdd"
    control_inputs = [each for each in node.input if each.startswith("^")]
    node.input[:] = [convolution, bias, *control_inputs]
    node.attr.clear()
    node.attr["T"].type = tf.float32.as_datatype_enum


def _equals_same_padding(padding: tf.Operation, convolution: tf.Operation) -> bool:
    """Return whether "SAME" pads as this Pad does before a "VALID" convolution.

    TensorFlow splits the padding between both sides; an odd one goes behind.
    """
    sizes = padding.inputs[0].shape[1:3]
    if convolution.get_attr("padding") != b"VALID" or None in sizes:
        return False
    expected = [[0, 0]]
    for axis, size in enumerate(sizes, start=1):
        stride = convolution.get_attr("strides")[axis]
        dilation = convolution.get_attr("dilations")[axis]
        window = (convolution.inputs[1].shape[axis - 1] - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        expected.append([total // 2, total - total // 2])
    return np.array_equal(tf.get_static_value(padding.inputs[1]), [*expected, [0, 0]])
