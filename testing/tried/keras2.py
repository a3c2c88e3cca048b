"""Models that Keras 2 wrote: tf_keras is its last version."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from testing.tried.case import tried
from testing.tried.saving import Known, Rows, Saving, integers, numbers

_H5, _KERAS, _HDF5 = "Keras 2, `.h5`", "Keras 2, `.keras`", "Keras 2, `.hdf5`"
TOLERANCE = 1e-6


def _keras2() -> Any:
    return import_module("tf_keras")


def _saved(
    saving: Saving, model: Any, rows: Rows | None, name: str = "model.h5"
) -> Known:
    """Save a model of tf_keras with other weights than those of new layers."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype.is_floating:
            weight.assign(random.uniform(0.05, 0.3, weight.shape))
    return replace(saving, keras=_keras2()).save(model, rows, name)


def _sequence(layers: Sequence[Any], *shape: int) -> Any:
    keras = _keras2()
    return keras.Sequential([keras.Input(shape), *layers])


@tried("LSTM with the hard sigmoid of Keras 2", _H5, tolerance=TOLERANCE)
def keras2_lstm(saving: Saving) -> Known:
    layers = _keras2().layers
    lstm = layers.LSTM(4, recurrent_activation="hard_sigmoid", recurrent_dropout=0.1)
    words = [layers.Embedding(20, 3, input_length=6), layers.SpatialDropout1D(0.1)]
    ids = integers(20, 5, 6).astype(np.float32)
    return _saved(saving, _sequence([*words, lstm, layers.Dense(2)], 6), ids)


@tried("Bidirectional GRU, and a model in TimeDistributed", _KERAS, tolerance=TOLERANCE)
def keras2_bidirectional(saving: Saving) -> Known:
    keras = _keras2()
    steps = keras.Input((5, 3))
    gru = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True))
    step = keras.Input((8,))
    each = keras.layers.TimeDistributed(keras.Model(step, keras.layers.Dense(2)(step)))
    model = keras.Model(steps, each(gru(steps)))
    return _saved(saving, model, numbers(5, 5, 3), "model.keras")


@tried("Separable, depthwise and transposed convolutions", _HDF5, tolerance=TOLERANCE)
def keras2_convolutions(saving: Saving) -> Known:
    layers = _keras2().layers
    convolutions = [
        layers.SeparableConv2D(4, 3, kernel_regularizer="l2"),
        layers.BatchNormalization(),
        layers.DepthwiseConv2D(3),
        layers.Conv2DTranspose(2, 3, strides=2, name="last/one"),
    ]
    model = _sequence(convolutions, 8, 8, 3)
    functional = _keras2().Model(model.inputs, model.outputs)
    return _saved(saving, functional, numbers(4, 8, 8, 3), "model.hdf5")


@tried(
    "Two inputs through one frozen model, outputs in a dict", _H5, tolerance=TOLERANCE
)
def keras2_several(saving: Saving) -> Known:
    keras = _keras2()
    inner = keras.Input((4,))
    normal = keras.layers.BatchNormalization()(keras.layers.Dense(3)(inner))
    backbone = keras.Model(inner, normal, name="backbone")
    backbone.trainable = False
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    apart = keras.layers.subtract([backbone(left), backbone(right)])
    bins = keras.layers.Discretization([0.2, 0.5, 0.8])(left)
    outputs = {"score": keras.layers.Dense(2)(apart), "bins": bins}
    model = keras.Model([left, right], outputs)
    rows = {"left": numbers(4, 4), "right": numbers(4, 4, seed=1)}
    return _saved(saving, model, rows)


@tried(
    "Attention, and an LSTM that begins with another's state", _H5, tolerance=TOLERANCE
)
def keras2_attention(saving: Saving) -> Known:
    keras = _keras2()
    steps = keras.Input((5, 4))
    attended = keras.layers.MultiHeadAttention(2, 3)(query=steps, value=steps)
    _, *state = keras.layers.LSTM(3, return_state=True)(attended)
    model = keras.Model(steps, keras.layers.LSTM(3)(steps, initial_state=state))
    return _saved(saving, model, numbers(4, 5, 4))


@tried(
    "Functions of TensorFlow between layers, converted at load",
    _KERAS,
    tolerance=TOLERANCE,
)
def keras2_functions(saving: Saving) -> Known:
    keras = _keras2()
    image = keras.Input((8, 8, 3))
    scaled = keras.applications.mobilenet_v2.preprocess_input(image)
    mean = saving.tf.reduce_mean(keras.layers.Conv2D(4, 3)(scaled), axis=[1, 2])
    return _saved(saving, keras.Model(image, mean), numbers(4, 8, 8, 3), "model.keras")


@tried("Lambda layer of Keras 2", _H5, refusal="a Python lambda is code of yours")
def keras2_lambda(saving: Saving) -> Known:
    double = _keras2().layers.Lambda(lambda row: row * 2)
    return _saved(saving, _sequence([double], 3), None)
