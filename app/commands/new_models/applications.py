"""Builds the image models of keras.applications, which take pixels as they are.

A row of uint8 is a quarter as large as a scaled one, and no request thread scales it:
docs/decisions.md (Scaling pixels) has the figures.
"""

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.engines.loading import error_first_line
from app.engines.tensorflow.keras_file import keras
from app.errors import ModelLoadError
from app.settings.image_config import SCALES

_CLASSES = 1000
# Keras would wait forever for a network that drops packets.
_SOCKET_TIMEOUT_S = 30


class DownloadError(ModelLoadError):
    """Weights or class names of keras.applications can't be downloaded."""


def build(
    function: str, scale: str, side: int | None, weights: Path | str | None
) -> keras.Model:
    """Build a classifier of 1000 classes for images of `side` x `side` pixels.

    It takes uint8 (rows, side, side, 3), RGB, scales pixels in its own graph, and
    returns scores, float32 (rows, 1000). `side` None is the architecture's default.
    `weights` are "imagenet", which Keras downloads with a progress bar, a file of
    weights, or None for random ones.

    Raises:
        DownloadError: the weights can't be downloaded.
        ModelLoadError: the architecture lacks this size, or the file these weights.
    """
    bare = _bare(function, side, weights)
    image = keras.Input(bare.input_shape[1:], dtype="uint8", name="image")
    scores = bare(scaled(image, scale))
    # Identity keeps the output's name, which would be the inner model's.
    return keras.Model(image, keras.layers.Identity(name=bare.output_names[0])(scores))


def scaled(image: keras.KerasTensor, scale: str) -> keras.KerasTensor:
    """Return pixels (rows, height, width, 3) of 0 to 255 as float32, scaled."""
    factor, summand, is_bgr = SCALES[scale]
    if is_bgr:
        image = keras.ops.flip(image, axis=-1)
    return keras.layers.Rescaling(factor, summand)(image)


def _bare(function: str, side: int | None, weights: Path | str | None) -> keras.Model:
    """Return the model of keras.applications, which takes scaled pixels."""
    make = getattr(keras.applications, function)
    shape = None if side is None else (side, side, 3)
    try:
        if not isinstance(weights, Path):
            with _download_timeout():
                return make(input_shape=shape, weights=weights)
        model = make(input_shape=shape, weights=None)
    except ValueError as error:
        raise ModelLoadError(f"{function}: {error_first_line(error)}") from error
    except Exception as error:  # Keras raises a bare Exception
        raise DownloadError(error_first_line(error)) from error
    _load_weights(model, weights, function)
    return model


def _load_weights(model: keras.Model, file: Path, function: str) -> None:
    try:
        with warnings.catch_warnings():
            # Keras only warns of layers that are not in the file.
            warnings.simplefilter("error", UserWarning)
            model.load_weights(file)
    except Exception as error:  # Keras raises whatever its many readers raise
        reason = error_first_line(error)
        raise ModelLoadError(
            f"{file.name} does not hold the weights of {function}: {reason}"
        ) from error


def imagenet_classes() -> dict[str, list[str]]:
    """Download ImageNet's classes: {"0": ["n01440764", "tench"], ...}.

    Raises:
        DownloadError: they can't be downloaded.
    """
    # decode_predictions is the table's public API: with falling scores it returns the
    # classes in order.
    falling = np.arange(_CLASSES, 0, -1, dtype=np.float32)[np.newaxis]
    decode = keras.applications.imagenet_utils.decode_predictions
    try:
        with _download_timeout():
            (classes,) = decode(falling, top=_CLASSES)
    except Exception as error:  # Keras raises a bare Exception
        raise DownloadError(error_first_line(error)) from error
    return {str(index): [each[0], each[1]] for index, each in enumerate(classes)}


@contextmanager
def _download_timeout() -> Iterator[None]:
    """Bound how long a download may stall; Keras has no timeout."""
    before_s = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SOCKET_TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before_s)
