"""Constant folding into convolutions: what is folded, and what stays."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW

_SIDE, _CHANNELS, _FILTERS = 7, 4, 6
_random = np.random.default_rng(4)
_ROWS = _random.normal(size=(3, _SIDE, _SIDE, _CHANNELS)).astype(np.float32)


def _numbers(*shape):
    return _random.uniform(0.5, 1.5, shape).astype(np.float32)


def _kernel(channels=_CHANNELS, filters=_FILTERS):
    return _numbers(3, 3, channels, filters) - 1


def _concrete(tf, compute, rows=_ROWS, shape=None):
    """Return the traced graph of `compute`, which captures constants only."""
    spec = tf.TensorSpec(shape or [None, *rows.shape[1:]], rows.dtype)
    return tf.function(compute, input_signature=[spec]).get_concrete_function()


def _fold(tf, compute, rows=_ROWS, shape=None):
    """Fold a graph, compare its outputs, and return the types of its operations."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    concrete = _concrete(tf, compute, rows, shape)
    folded = fold(concrete)
    expected = tf.nest.flatten(concrete(tf.constant(rows)))
    found = tf.nest.flatten(folded(tf.constant(rows)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    return [operation.type for operation in folded.graph.get_operations()]


def _batch_normalization(tf, x, channels=_FILTERS):
    """Return batch normalization as Keras traces it."""
    mean, variance, offset, scale = (_numbers(channels) for _ in range(4))
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


def _fused_batch_norm(tf, x, **options):
    moments = [_numbers(_FILTERS) for _ in range(4)]
    return tf.compat.v1.nn.fused_batch_norm(x, *moments, **options)


def test_folding_of_bias_and_batch_normalization(tf):
    """A convolution with a bias and a normalization becomes one with a BiasAdd."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME") + _numbers(1, 1, 1, _FILTERS)
        return tf.nn.relu6(_batch_normalization(tf, y))

    types = _fold(tf, compute)
    assert types.count("BiasAdd") == 1
    assert not {"Mul", "AddV2", "Sub"}.intersection(types)


@pytest.mark.parametrize("multiplier", [1, 3])
def test_folding_into_a_depthwise_convolution(tf, multiplier):
    """Each channel's factor reaches its own weights, for any depth multiplier."""
    kernel = _kernel(_CHANNELS, multiplier)

    def compute(x):
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        return _batch_normalization(tf, y, _CHANNELS * multiplier)

    types = _fold(tf, compute)
    assert "DepthwiseConv2dNative" in types
    assert not {"Mul", "AddV2"}.intersection(types)


def test_folding_of_fused_batch_norm(tf):
    """A FusedBatchNormV3 for inference becomes weights and a BiasAdd."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "VALID")
        y = tf.nn.bias_add(y, _numbers(_FILTERS))
        return _fused_batch_norm(tf, y, is_training=False)[0]

    types = _fold(tf, compute)
    assert "FusedBatchNormV3" not in types
    assert types.count("BiasAdd") == 1


def _convolution(tf, x):
    return tf.nn.conv2d(x, _kernel(), 1, "SAME")


def _batch_norm_in_training(tf, x):
    options = {"is_training": True, "exponential_avg_factor": 0.5}
    return _fused_batch_norm(tf, _convolution(tf, x), **options)[0]


def _batch_norm_with_used_moments(tf, x):
    y, mean, _ = _fused_batch_norm(tf, _convolution(tf, x), is_training=False)
    return y, mean * 2.0


def _output_with_two_consumers(tf, x):
    y = _convolution(tf, x)
    return y * _numbers(_FILTERS), tf.nn.relu(y)


def _factor_computed_from_rows(tf, x):
    return _convolution(tf, x) * tf.reduce_mean(x)


def _padding_before_a_padded_convolution(tf, x):
    return _convolution(tf, tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]))


def _padding_for_other_consumers(tf, x):
    padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
    return tf.nn.conv2d(padded, _kernel(), 1, "VALID"), tf.nn.relu(padded)


@pytest.mark.parametrize(
    ("compute", "kept"),
    [
        (_batch_norm_in_training, "FusedBatchNormV3"),
        (_batch_norm_with_used_moments, "FusedBatchNormV3"),
        (_output_with_two_consumers, "Mul"),
        (_factor_computed_from_rows, "Mul"),
        (_padding_before_a_padded_convolution, "Pad"),
        (_padding_for_other_consumers, "Pad"),
    ],
)
def test_folding_leaves_operations_that_others_need(tf, compute, kept):
    """An operation stays if it is not constant per channel, or has another consumer."""
    assert kept in _fold(tf, partial(compute, tf))


def test_folding_of_weights_shared_by_two_convolutions(tf):
    """A kernel used twice, with two normalizations, becomes two kernels."""
    kernel = _kernel()

    def compute(x):
        both = [
            _batch_normalization(tf, tf.nn.conv2d(each, kernel, 1, "SAME"))
            for each in (x, -x)
        ]
        return tf.concat(both, axis=0)

    assert "Mul" not in _fold(tf, compute)


def test_folding_leaves_an_output_of_the_model(tf):
    """An output of the model between a convolution and its bias stays."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME")
        return tf.nn.relu(y * _numbers(_FILTERS))

    spec = tf.TensorSpec([None, *_ROWS.shape[1:]], tf.float32)
    wrapped = tf.compat.v1.wrap_function(compute, [spec])
    (convolution,) = (
        each for each in wrapped.graph.get_operations() if each.type == "Conv2D"
    )
    # No operation uses the first output.
    ends = [convolution.outputs[0], wrapped.outputs[0]]
    constant = wrapped.prune(wrapped.inputs, ends)
    found = fold(constant)(tf.constant(_ROWS))
    for one, other in zip(found, constant(tf.constant(_ROWS)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "shape", [(_SIDE, _SIDE, 1), (_SIDE, 1, _FILTERS), (2, 1, 1, 1, _FILTERS)]
)
def test_folding_leaves_constants_that_differ_by_position(tf, shape):
    """A constant with more than one value per channel stays."""
    constant = _numbers(*shape)

    def compute(x):
        return tf.nn.conv2d(x, _kernel(), 1, "SAME") + constant

    assert "AddV2" in _fold(tf, compute)


def test_folding_leaves_weights_computed_from_rows(tf):
    """A convolution whose weights are not constant keeps what follows it."""

    def compute(x):
        kernel = _kernel() * tf.reduce_mean(x)
        return tf.nn.conv2d(x, kernel, 1, "SAME") * _numbers(_FILTERS)

    assert _fold(tf, compute).count("Mul") == 2


def test_folding_leaves_half_precision(tf):
    """Half-precision weights are not folded, which would lose digits."""
    kernel = _kernel().astype(np.float16)

    def compute(x):
        y = tf.nn.conv2d(x, kernel, 1, "SAME")
        return y + _numbers(_FILTERS).astype(np.float16)

    assert "AddV2" in _fold(tf, compute, _ROWS.astype(np.float16))


def test_folding_returns_a_graph_without_convolutions(tf):
    """A graph without convolutions is returned as it is."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    concrete = _concrete(tf, lambda x: x * 2.0 + 1.0)
    assert fold(concrete) is concrete


def _padded(tf, around, window, stride, dilation=1, is_depthwise=False):
    kernel = _numbers(window, window, _CHANNELS, 1)

    def compute(x):
        padded = tf.pad(x, [[0, 0], *around, [0, 0]])
        if is_depthwise:
            strides, dilations = [1, stride, stride, 1], [dilation, dilation]
            return tf.nn.depthwise_conv2d(
                padded, kernel, strides, "VALID", dilations=dilations
            )
        return tf.nn.conv2d(padded, kernel, stride, "VALID", dilations=dilation)

    return compute


@pytest.mark.parametrize(
    ("side", "pads", "window", "stride", "dilation"),
    [
        # As Keras pads before a stride of 2, for even and for odd sizes.
        (8, (0, 1), 3, 2, 1),
        (7, (1, 1), 3, 2, 1),
        (8, (1, 2), 5, 2, 1),
        (7, (1, 1), 3, 1, 1),
        (7, (2, 2), 3, 1, 2),
        (7, (0, 0), 1, 3, 1),
    ],
)
def test_folding_of_explicit_same_padding(tf, side, pads, window, stride, dilation):
    """A Pad that "SAME" would do becomes the convolution's padding."""
    rows = _random.normal(size=(2, side, side, _CHANNELS)).astype(np.float32)
    types = _fold(tf, _padded(tf, [pads, pads], window, stride, dilation), rows)
    assert "Pad" not in types


@pytest.mark.parametrize("pads", [[(1, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (0, 2)]])
def test_folding_leaves_other_padding(tf, pads):
    """A Pad of other sides or sizes than those of "SAME" stays."""
    rows = _random.normal(size=(2, 8, 8, _CHANNELS)).astype(np.float32)
    assert "Pad" in _fold(tf, _padded(tf, pads, window=3, stride=2), rows)


_pads = st.tuples(st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=40)
@given(
    side=st.integers(6, 9),
    pads=st.tuples(_pads, _pads),
    window=st.integers(1, 4),
    stride=st.integers(1, 3),
    is_depthwise=st.booleans(),
)
def test_folding_of_any_padding_keeps_the_outputs(
    tf, side, pads, window, stride, is_depthwise
):
    """Any padding before any window has the same outputs, folded or not."""
    rows = _random.normal(size=(1, side, side + 1, _CHANNELS)).astype(np.float32)
    _fold(tf, _padded(tf, pads, window, stride, is_depthwise=is_depthwise), rows)


def test_folding_leaves_padding_of_free_image_sizes(tf):
    """With free image sizes, the padding of "SAME" is unknown, so the Pad stays."""

    def compute(x):
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(padded, _kernel(), 1, "VALID")

    assert "Pad" in _fold(tf, compute, shape=[None, None, None, _CHANNELS])


def test_folding_keeps_unused_and_passed_through_inputs(tf):
    """A folded graph accepts all inputs, also unused and passed-through ones."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415
    from app.engines.tensorflow.tensorflow_private import (  # noqa: PLC0415
        with_output_names,
    )

    def compute(x, ignored, passed):
        del ignored
        return passed, tf.nn.conv2d(x, _kernel(), 1, "SAME") * _numbers(_FILTERS)

    number = tf.TensorSpec([None], tf.float32)
    rows = tf.TensorSpec([None, *_ROWS.shape[1:]], tf.float32)
    function = tf.function(compute, input_signature=[rows, number, number])
    concrete = function.get_concrete_function()
    inputs = [tf.constant(_ROWS), tf.constant([1.0]), tf.constant([2.0])]
    outputs = with_output_names(fold(concrete), ["passed", "computed"])(*inputs)
    assert outputs["passed"].numpy().tolist() == [2.0]
    expected = concrete(*inputs)[1]
    np.testing.assert_allclose(outputs["computed"], expected, rtol=2e-5, atol=2e-5)


def _mobilenet_layers(layers):
    """Return layers as in MobileNetV2."""
    return [
        layers.Conv2D(_FILTERS, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.ZeroPadding2D(((0, 1), (0, 1))),
        layers.DepthwiseConv2D(3, 2, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.Conv2D(5, 1, use_bias=False),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3, "softmax"),
    ]


def _grouped(layers):
    """Return a grouped convolution, which Keras compiles, beside plain ones."""
    return [layers.Conv2D(8, 3), layers.Conv2D(8, 3, groups=4), layers.Conv2D(4, 1)]


def _recurrent(layers):
    """Return a convolution with a bias in each step of a loop."""
    return [layers.Reshape([4, 4, 4, 3]), layers.ConvLSTM2D(5, 3, padding="same")]


@pytest.mark.parametrize("made_of", [_mobilenet_layers, _grouped, _recurrent])
def test_engine_outputs_equal_the_keras_model_after_folding(tf, made_of):
    """Trained layers of these kinds give Keras's outputs when they are served."""
    from app.engines.tensorflow.keras_file import (  # noqa: PLC0415
        KerasTensorFlowEngine,
        keras,
    )

    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input([8, 8, 3]), *made_of(keras.layers)])
    model.set_weights([_numbers(*each.shape) - 0.4 for each in model.get_weights()])
    rows = _random.normal(size=(5, 8, 8, 3)).astype(np.float32)
    engine = KerasTensorFlowEngine(model)
    (spec,) = engine.signatures["serving_default"].inputs
    (found,) = engine.run({spec.name: rows}).values()
    np.testing.assert_allclose(found, model(rows), rtol=1e-4, atol=1e-5)
    engine.close()
