"""Folds what follows a convolution, channel by channel, into its weights.

Batch normalisation, and a bias as Keras adds it, are passes over all that a
convolution gives. With new weights and one BiasAdd, TensorFlow computes them, and the
activation behind them, within the convolution. So it does with a padding before it
that is the one of "SAME". `python -m bench.freezing` measures what that saves.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.eager.wrap_function import function_from_graph_def
from tensorflow.python.grappler import tf_optimizer

_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")

_Array: TypeAlias = npt.NDArray[np.float32]
# A factor and a summand for each channel.
_Step: TypeAlias = tuple[_Array, _Array]
_ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction
# A GraphDef and a NodeDef; the protocol buffers have no types.
_GraphDef: TypeAlias = Any
_NodeDef: TypeAlias = Any


def folded(function: _ConcreteFunction) -> _ConcreteFunction:
    """The same computation of a graph of constants, with fewer passes over its data.

    What it gives differs by roundings of float32. A graph without convolutions comes
    back as it is.
    """
    if not any(map(_is_convolution, function.graph.get_operations())):
        return function
    inputs = [each.name for each in function.inputs]
    outputs = [each.name for each in function.outputs]
    graph_def = _with_constants_computed(function.graph, outputs)
    # Grappler changes functions and leaves them their names, by which TensorFlow knows
    # them already.
    graph_def.library.CopyFrom(function.graph.as_graph_def().library)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    nodes = {node.name: node for node in graph_def.node}
    for convolution in filter(_is_convolution, graph.get_operations()):
        weights = tf.get_static_value(convolution.inputs[1])
        steps = {} if weights is None else dict(_steps(convolution, outputs))
        if steps:
            *_, last = steps
            factor, bias = _as_one(steps.values())
            beside = convolution.inputs[1].op
            bias_node = _constant(f"{convolution.name}/folded_bias", bias, beside)
            graph_def.node.append(bias_node)
            if np.any(factor != 1):
                weights = weights * factor.reshape(_channel_axes(convolution))
                name = f"{convolution.name}/folded_weights"
                graph_def.node.append(_constant(name, weights, beside))
                nodes[convolution.name].input[1] = name
            _become_bias_add(nodes[last.name], convolution.name, bias_node.name)
        padding = convolution.inputs[0].op
        if padding.type == "Pad" and _pads_as_same(padding, convolution):
            nodes[convolution.name].input[0] = padding.inputs[0].name
            nodes[convolution.name].attr["padding"].s = b"SAME"
    return function_from_graph_def(graph_def, inputs, outputs)


def _is_convolution(operation: tf.Operation) -> bool:
    return (
        operation.type in _CONVOLUTIONS
        and operation.outputs[0].dtype == tf.float32
        and _has_channels_last(operation)
    )


def _has_channels_last(operation: tf.Operation) -> bool:
    return bool(operation.get_attr("data_format") == b"NHWC")


def _with_constants_computed(graph: tf.Graph, kept: Collection[str]) -> _GraphDef:
    """The graph, in which what depends on no input is a constant.

    The tensors with the names that are `kept` stay, whatever becomes of the others.
    """
    meta_graph = tf.compat.v1.train.export_meta_graph(
        graph_def=graph.as_graph_def(), graph=graph
    )
    # By this name TensorFlow knows what is wanted of the graph.
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs as well
    options.optimizers.extend(["constfold", "dependency"])
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _steps(
    convolution: tf.Operation, outputs: Collection[str]
) -> Iterator[tuple[tf.Operation, _Step]]:
    """The operations to fold: nothing else wants what lies between."""
    (tensor,) = convolution.outputs
    while tensor.name not in outputs and len(tensor.consumers()) == 1:
        (operation,) = tensor.consumers()
        step = _step(operation, tensor)
        if step is None:
            return
        yield operation, step
        tensor = operation.outputs[0]


def _step(operation: tf.Operation, tensor: tf.Tensor) -> _Step | None:
    """What an operation does to each channel of a tensor, where it does no more."""
    channels = tensor.shape[-1]
    others = [each for each in operation.inputs if each is not tensor]
    found = [_by_channel(each, channels) for each in others]
    constants = [each for each in found if each is not None]
    if len(constants) < len(others):
        return None
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    match operation.type, constants:
        case "Mul", [factor]:
            return factor, zeros
        case "AddV2", [summand]:
            return ones, summand
        case "BiasAdd", [summand] if _has_channels_last(operation):
            return ones, summand
        case "FusedBatchNormV3", [scale, offset, mean, variance]:
            if _is_for_inference(operation):
                factor = scale / np.sqrt(variance + operation.get_attr("epsilon"))
                return factor, offset - mean * factor
    return None


def _by_channel(tensor: tf.Tensor, channels: int) -> _Array | None:
    """A constant's value for each channel, where it has no more values than that."""
    value = tf.get_static_value(tensor)
    if value is None:
        return None
    try:
        return np.broadcast_to(value, (1, 1, 1, channels)).ravel()
    except ValueError:
        return None


def _is_for_inference(normalisation: tf.Operation) -> bool:
    """Say whether it computes no moments itself, and gives none to others."""
    _, *moments = normalisation.outputs
    return (
        _has_channels_last(normalisation)
        and not normalisation.get_attr("is_training")
        and not any(each.consumers() for each in moments)
    )


def _as_one(steps: Iterable[_Step]) -> _Step:
    """The step that does what all do, one after the other."""
    first, *others = steps
    factor, summand = first
    for times, plus in others:
        factor, summand = factor * times, summand * times + plus
    return factor, summand


def _channel_axes(convolution: tf.Operation) -> list[int]:
    """The sizes of the last axes of its weights, which make up its channels.

    Depthwise, a channel is one of the last axis for each of the one before.
    """
    is_depthwise = convolution.type == "DepthwiseConv2dNative"
    sizes: list[int] = convolution.inputs[1].shape.as_list()
    return sizes[2:] if is_depthwise else sizes[3:]


def _constant(name: str, value: _Array, beside: tf.Operation) -> _NodeDef:
    """A constant of the same loop, if it is one, as another."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.input.extend(f"^{each.name}" for each in beside.control_inputs)
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return node


def _become_bias_add(node: _NodeDef, convolution: str, bias: str) -> None:
    """Replace an operation by another, which has its name and so its consumers."""
    node.op = "BiasAdd"
    waits_for = [each for each in node.input if each.startswith("^")]
    node.input[:] = [convolution, bias, *waits_for]
    node.attr.clear()
    node.attr["T"].type = tf.float32.as_datatype_enum


def _pads_as_same(padding: tf.Operation, convolution: tf.Operation) -> bool:
    """Say whether "SAME" would pad a convolution without padding of its own so.

    TensorFlow divides what is wanted between both sides, and the odd one goes behind.
    """
    sizes = padding.inputs[0].shape[1:3]
    if convolution.get_attr("padding") != b"VALID" or None in sizes:
        return False
    around = [[0, 0]]
    for axis, size in enumerate(sizes, start=1):
        stride = convolution.get_attr("strides")[axis]
        dilation = convolution.get_attr("dilations")[axis]
        window = (convolution.inputs[1].shape[axis - 1] - 1) * dilation + 1
        wanted = max((-(-size // stride) - 1) * stride + window - size, 0)
        around.append([wanted // 2, wanted - wanted // 2])
    return np.array_equal(tf.get_static_value(padding.inputs[1]), [*around, [0, 0]])
