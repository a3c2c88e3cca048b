"""Keras models for tests, made where Keras is imported already."""

from pathlib import Path
from typing import Any

import numpy as np


def tell_apart(keras: Any, model: Any, rows: np.ndarray) -> None:
    """Give a classifier of random weights statistics and scores that differ by row.

    As it is made, a deep one gives each class the same score, whatever it sees.
    """
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(rows, training=True)
    last = model.layers[-1]
    kernel, _ = last.get_weights()
    seen = keras.Model(model.input, last.input)(rows).numpy()
    common = seen.mean(axis=0)
    kernel *= 3 / np.std((seen - common) @ kernel)
    last.set_weights([kernel, -common @ kernel])


def small_convolutions(keras: Any, side: int) -> Any:
    """The kinds of layers of which MobileNetV2 is made, few of each."""
    layers = keras.layers
    image = keras.Input((side, side, 3))
    signal = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
    signal = short = layers.ReLU(6.0)(layers.BatchNormalization()(signal))
    signal = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(signal)
    signal = layers.ReLU(6.0)(layers.BatchNormalization()(signal))
    signal = layers.Add()([signal, short])
    signal = layers.GlobalAveragePooling2D()(signal)
    return keras.Model(image, layers.Dense(10, activation="softmax")(signal))


def save_several(keras: Any, classifier: Any, file: Path) -> None:
    """A classifier of scaled pictures within a model of three inputs, four outputs."""
    side = classifier.input_shape[1]
    picture = keras.Input((side, side, 3), name="picture", dtype="uint8")
    weight = keras.Input((2,), name="weight")
    number = keras.Input((2,), name="number", dtype="int32")
    scores = classifier(keras.layers.Rescaling(1 / 127.5, -1.0)(picture))
    hidden = keras.layers.Dense(4, activation="tanh")(weight)
    outputs = {
        "scores": scores,
        "certain": scores > 0.5,
        "sum": keras.layers.Dense(1)(hidden) + keras.ops.cast(number, "float32"),
        "a/part": keras.layers.Dense(2)(weight),
    }
    # Not in the order of their names.
    model = keras.Model(
        {"weight": weight, "picture": picture, "number": number}, outputs
    )
    model.save(file)
