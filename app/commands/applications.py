"""Builds the image models of keras.applications, which take pixels as they are.

A row of uint8 is a quarter as large as a scaled one, and no request thread scales it:
`python -m bench.vision.in_graph` measures what that is worth.
"""

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from app.engines.reading import first_line
from app.engines.tensorflow.keras_file import keras
from app.errors import ModelLoadError
from app.settings.image_config import SCALES

_CLASSES = 1000
# A network that swallows packets would have Keras wait for ever.
_SILENCE_S = 30


class DownloadError(ModelLoadError):
    """What keras.applications keeps on the network can't be had."""


def build(
    function: str, scale: str, side: int | None, weights: Path | str | None
) -> keras.Model:
    """Build a classifier of 1000 classes for squares of so many pixels.

    It takes uint8 (rows, side, side, 3), red, green and blue from 0 to 255, scales
    them in its own graph, and gives the scores, float32 (rows, 1000). `side` None is
    the architecture's own. `weights` are "imagenet", which Keras downloads with a
    progress bar, a file of weights, or None: random.

    Raises:
        DownloadError: the weights can't be downloaded.
        ModelLoadError: no such size, or a file without these weights.
    """
    bare = _bare(function, side, weights)
    image = keras.Input(bare.input_shape[1:], dtype="uint8", name="image")
    scores = bare(scaled(image, scale))
    # The output keeps its name, which would be the inner model's.
    return keras.Model(image, keras.layers.Identity(name=bare.output_names[0])(scores))


def scaled(image: keras.KerasTensor, scale: str) -> keras.KerasTensor:
    """Pixels (rows, height, width, 3) of 0 to 255 as float32, scaled."""
    factor, summand, is_bgr = SCALES[scale]
    if is_bgr:
        image = keras.ops.flip(image, axis=-1)
    return keras.layers.Rescaling(factor, summand)(image)


def _bare(function: str, side: int | None, weights: Path | str | None) -> keras.Model:
    """The model as keras.applications has it, for pictures that are scaled."""
    make = getattr(keras.applications, function)
    shape = None if side is None else (side, side, 3)
    try:
        if not isinstance(weights, Path):
            with _silence_ends():
                return make(input_shape=shape, weights=weights)
        model = make(input_shape=shape, weights=None)
    except ValueError as error:
        raise ModelLoadError(f"{function}: {first_line(error)}") from error
    except Exception as error:  # Keras raises a bare Exception
        raise DownloadError(first_line(error)) from error
    _load_weights(model, weights, function)
    return model


def _load_weights(model: keras.Model, file: Path, function: str) -> None:
    try:
        with warnings.catch_warnings():
            # Keras only warns of layers that a file has no weights for.
            warnings.simplefilter("error", UserWarning)
            model.load_weights(file)
    except Exception as error:  # Keras raises whatever its many readers raise
        raise ModelLoadError(
            f"{file.name} does not hold the weights of {function}: {first_line(error)}"
        ) from error


def imagenet_classes() -> dict[str, list[str]]:
    """ImageNet's classes, {"0": ["n01440764", "tench"], ...}, which Keras downloads.

    Raises:
        DownloadError: they can't be downloaded.
    """
    # The public way to the table: scores that fall from the first class to the last.
    falling = np.arange(_CLASSES, 0, -1, dtype=np.float32)[np.newaxis]
    decode = keras.applications.imagenet_utils.decode_predictions
    try:
        with _silence_ends():
            (classes,) = decode(falling, top=_CLASSES)
    except Exception as error:  # Keras raises a bare Exception
        raise DownloadError(first_line(error)) from error
    return {str(index): [each[0], each[1]] for index, each in enumerate(classes)}


@contextmanager
def _silence_ends() -> Iterator[None]:
    """Bound how long a download may say nothing; Keras takes no timeout."""
    before_s = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before_s)
