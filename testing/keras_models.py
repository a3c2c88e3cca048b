"""Keras models for tests and benchmarks; the caller imports Keras."""

from pathlib import Path
from typing import Any

import numpy as np


def spread_scores(keras: Any, model: Any, rows: np.ndarray) -> None:
    """Set a random classifier's batch statistics and scores, so that rows differ.

    A deep one gives each class the same score for any input, as it is initialized.
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
    """Return a small model of the kinds of layers that MobileNetV2 has."""
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
    """Save a model of three inputs and four outputs around an image classifier."""
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
    # Not in alphabetical order.
    model = keras.Model(
        {"weight": weight, "picture": picture, "number": number}, outputs
    )
    model.save(file)
