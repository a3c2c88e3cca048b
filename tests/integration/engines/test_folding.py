"""What is folded into a convolution's weights, and what is left beside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras deprecate their own parts.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_SIDE, _CHANNELS, _FILTERS = 7, 4, 6
_random = np.random.default_rng(4)
_ROWS = _random.normal(size=(3, _SIDE, _SIDE, _CHANNELS)).astype(np.float32)


def _numbers(*shape):
    return _random.uniform(0.5, 1.5, shape).astype(np.float32)


def _kernel(channels=_CHANNELS, filters=_FILTERS):
    return _numbers(3, 3, channels, filters) - 1


def _constant(tf, compute, rows=_ROWS, shape=None):
    """A graph of constants of what `compute` does to rows."""
    spec = tf.TensorSpec(shape or [None, *rows.shape[1:]], rows.dtype)
    return tf.function(compute, input_signature=[spec]).get_concrete_function()


def _fold(tf, compute, rows=_ROWS, shape=None):
    """The types of a folded graph's operations, once it has computed the same."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    constant = _constant(tf, compute, rows, shape)
    fast = fold(constant)
    expected = tf.nest.flatten(constant(tf.constant(rows)))
    found = tf.nest.flatten(fast(tf.constant(rows)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    return [operation.type for operation in fast.graph.get_operations()]


def _normalised(tf, x, channels=_FILTERS):
    """Batch normalisation as Keras traces it."""
    mean, variance, offset, scale = (_numbers(channels) for _ in range(4))
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


def test_normalisation_and_bias_become_weights_and_one_addition(tf):
    """A convolution with a bias and a normalisation becomes one with a BiasAdd."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME") + _numbers(1, 1, 1, _FILTERS)
        return tf.nn.relu6(_normalised(tf, y))

    types = _fold(tf, compute)
    assert types.count("BiasAdd") == 1
    assert not {"Mul", "AddV2", "Sub"}.intersection(types)


@pytest.mark.parametrize("multiplier", [1, 3])
def test_a_depthwise_convolution_takes_its_normalisation_in(tf, multiplier):
    """Each channel's factor reaches its own weights, however many it has."""
    kernel = _kernel(_CHANNELS, multiplier)

    def compute(x):
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        return _normalised(tf, y, _CHANNELS * multiplier)

    types = _fold(tf, compute)
    assert "DepthwiseConv2dNative" in types
    assert not {"Mul", "AddV2"}.intersection(types)


def test_the_normalisation_of_older_models_is_folded_as_well(tf):
    """A FusedBatchNormV3 for inference becomes weights and a BiasAdd."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "VALID")
        y = tf.nn.bias_add(y, _numbers(_FILTERS))
        moments = [_numbers(_FILTERS) for _ in range(4)]
        y, _, _ = tf.compat.v1.nn.fused_batch_norm(y, *moments, is_training=False)
        return y

    types = _fold(tf, compute)
    assert "FusedBatchNormV3" not in types
    assert types.count("BiasAdd") == 1


def test_normalisation_by_what_is_in_the_batch_is_left(tf):
    """A FusedBatchNormV3 that computes its own moments is no matter of weights."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "VALID")
        moments = [_numbers(_FILTERS) for _ in range(4)]
        y, _, _ = tf.compat.v1.nn.fused_batch_norm(
            y, *moments, is_training=True, exponential_avg_factor=0.5
        )
        return y

    assert "FusedBatchNormV3" in _fold(tf, compute)


def test_normalisation_whose_moments_are_wanted_is_left(tf):
    """A FusedBatchNormV3 is still there where another of its outputs is taken."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "VALID")
        moments = [_numbers(_FILTERS) for _ in range(4)]
        y, mean, _ = tf.compat.v1.nn.fused_batch_norm(y, *moments, is_training=False)
        return y, mean * 2.0

    assert "FusedBatchNormV3" in _fold(tf, compute)


def test_weights_that_two_convolutions_share_are_folded_for_each(tf):
    """A kernel used twice, normalised in two ways, becomes two kernels."""
    kernel = _kernel()

    def compute(x):
        both = [
            _normalised(tf, tf.nn.conv2d(each, kernel, 1, "SAME")) for each in (x, -x)
        ]
        return tf.concat(both, axis=0)

    assert "Mul" not in _fold(tf, compute)


def test_what_others_want_as_well_stays_as_it_is(tf):
    """A convolution's own answer is still there where a second operation takes it."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME")
        return y * _numbers(_FILTERS), tf.nn.relu(y)

    assert "Mul" in _fold(tf, compute)


def test_what_the_model_gives_stays_as_it_is(tf):
    """An answer that lies between a convolution and its bias is still there."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME")
        return tf.nn.relu(y * _numbers(_FILTERS))

    spec = tf.TensorSpec([None, *_ROWS.shape[1:]], tf.float32)
    wrapped = tf.compat.v1.wrap_function(compute, [spec])
    (convolution,) = (
        each for each in wrapped.graph.get_operations() if each.type == "Conv2D"
    )
    # No other operation takes the first answer.
    ends = [convolution.outputs[0], wrapped.outputs[0]]
    constant = wrapped.prune(wrapped.inputs, ends)
    found = fold(constant)(tf.constant(_ROWS))
    for one, other in zip(found, constant(tf.constant(_ROWS)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "shape", [(_SIDE, _SIDE, 1), (_SIDE, 1, _FILTERS), (2, 1, 1, 1, _FILTERS)]
)
def test_what_differs_by_place_is_left(tf, shape):
    """A constant with more than one value for a channel is no matter of weights."""
    constant = _numbers(*shape)

    def compute(x):
        return tf.nn.conv2d(x, _kernel(), 1, "SAME") + constant

    assert "AddV2" in _fold(tf, compute)


def test_what_is_computed_of_the_rows_is_left(tf):
    """A factor that is no constant stays a multiplication."""

    def compute(x):
        y = tf.nn.conv2d(x, _kernel(), 1, "SAME")
        return y * tf.reduce_mean(x)

    assert "Mul" in _fold(tf, compute)


def test_weights_that_are_computed_of_the_rows_are_left(tf):
    """A convolution whose weights are no constants keeps what follows it."""

    def compute(x):
        kernel = _kernel() * tf.reduce_mean(x)
        return tf.nn.conv2d(x, kernel, 1, "SAME") * _numbers(_FILTERS)

    assert _fold(tf, compute).count("Mul") == 2


def test_half_precision_is_left(tf):
    """Where weights have few digits, none are lost by folding."""
    kernel = _kernel().astype(np.float16)

    def compute(x):
        y = tf.nn.conv2d(x, kernel, 1, "SAME")
        return y + _numbers(_FILTERS).astype(np.float16)

    assert "AddV2" in _fold(tf, compute, _ROWS.astype(np.float16))


def test_a_graph_without_convolutions_is_left(tf):
    """Other graphs come back as they are."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    constant = _constant(tf, lambda x: x * 2.0 + 1.0)
    assert fold(constant) is constant


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
def test_the_padding_of_same_is_left_to_the_convolution(
    tf, side, pads, window, stride, dilation
):
    """A padding that "SAME" would do is done by the convolution."""
    rows = _random.normal(size=(2, side, side, _CHANNELS)).astype(np.float32)
    types = _fold(tf, _padded(tf, [pads, pads], window, stride, dilation), rows)
    assert "Pad" not in types


@pytest.mark.parametrize("pads", [[(1, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (0, 2)]])
def test_another_padding_stays(tf, pads):
    """A padding on other sides, or of another size, than that of "SAME" stays."""
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
def test_whatever_is_padded_the_answers_are_the_same(
    tf, side, pads, window, stride, is_depthwise
):
    """Any padding before any window gives what it gave, folded or not."""
    rows = _random.normal(size=(1, side, side + 1, _CHANNELS)).astype(np.float32)
    _fold(tf, _padded(tf, pads, window, stride, is_depthwise=is_depthwise), rows)


def test_a_padding_of_any_size_is_left(tf):
    """Where a picture's size is free, so is what "SAME" would pad."""

    def compute(x):
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(padded, _kernel(), 1, "VALID")

    assert "Pad" in _fold(tf, compute, shape=[None, None, None, _CHANNELS])


def test_a_padding_before_another_stays(tf):
    """A convolution that pads by itself keeps the padding before it."""

    def compute(x):
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(padded, _kernel(), 1, "SAME")

    assert "Pad" in _fold(tf, compute)


def test_a_padding_that_others_want_stays_for_them(tf):
    """One convolution may do without a padding that another operation takes."""

    def compute(x):
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(padded, _kernel(), 1, "VALID"), tf.nn.relu(padded)

    assert "Pad" in _fold(tf, compute)


def test_inputs_stay_that_no_convolution_takes(tf):
    """A folded graph takes all inputs, also those it ignores or only hands through."""
    from app.engines.tensorflow.folding import fold  # noqa: PLC0415

    def compute(x, ignored, handed):
        del ignored
        return handed, tf.nn.conv2d(x, _kernel(), 1, "SAME") * _numbers(_FILTERS)

    number = tf.TensorSpec([None], tf.float32)
    rows = tf.TensorSpec([None, *_ROWS.shape[1:]], tf.float32)
    function = tf.function(compute, input_signature=[rows, number, number])
    constant = function.get_concrete_function()
    given = [tf.constant(_ROWS), tf.constant([1.0]), tf.constant([2.0])]
    handed, computed = fold(constant).inference_fn.call_flat(*given)
    assert handed.numpy().tolist() == [2.0]
    np.testing.assert_allclose(computed, constant(*given)[1], rtol=2e-5, atol=2e-5)


def _picture_model(layers):
    """Layers as in MobileNetV2."""
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
    """Groups, which Keras computes in a compiled function, beside plain ones."""
    return [layers.Conv2D(8, 3), layers.Conv2D(8, 3, groups=4), layers.Conv2D(4, 1)]


def _recurrent(layers):
    """A convolution with a bias in each step of a loop."""
    return [layers.Reshape([4, 4, 4, 3]), layers.ConvLSTM2D(5, 3, padding="same")]


@pytest.mark.parametrize("made_of", [_picture_model, _grouped, _recurrent])
def test_an_engine_answers_as_its_model_does(tf, made_of):
    """Trained layers of these kinds answer as Keras does when they are served."""
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
