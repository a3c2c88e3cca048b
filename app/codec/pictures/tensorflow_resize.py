"""Resizing as tf.image.resize does it, without TensorFlow and without antialiasing.

The arithmetic is that of TensorFlow's kernels, in float32: half-pixel centers, and
edges that repeat.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

# Pixels of a band, as they come and as they are made, which bounds the memory.
_BAND_FROM, _BAND_TO = 1 << 18, 1 << 15
_HALF = np.float32(0.5)


Floats: TypeAlias = npt.NDArray[np.float32]


class _Taps(NamedTuple):
    """Pixels that make the pixels of one side: indices and weights (taps, pixels)."""

    indices: npt.NDArray[np.intp]
    weights: Floats


def resized(
    image: Image.Image,
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    interpolation: str,
) -> Floats:
    """Return the pixels (height, width, channels) of a part of an image, resized.

    float32 from 0 to 255, not rounded. The image is in RGB or L, and `box` the left,
    top, right and bottom of the part. `size` is (height, width), and `interpolation` is
    nearest or bilinear.
    """
    left, top, right, bottom = box
    height, width = size
    rows = _taps(range(top, bottom), height, interpolation)
    columns = _taps(range(left, right), width, interpolation)
    pixels = np.empty((height, width * len(image.getbands())), np.float32)
    from_rows = _BAND_FROM * height // (image.width * (bottom - top))
    step = max(1, min(from_rows, _BAND_TO // width))
    for begin in range(0, height, step):
        band = slice(begin, begin + step)
        taps = _Taps(rows.indices[:, band], rows.weights[:, band])
        _weighted(image, taps, columns).sum(axis=0, out=pixels[band])
    return pixels.reshape(height, width, -1)


def _weighted(image: Image.Image, rows: _Taps, columns: _Taps) -> Floats:
    """Return the rows of a band, with their weights: (taps, rows, width * channels)."""
    top, bottom = int(rows.indices.min()), int(rows.indices.max()) + 1
    band = np.asarray(image.crop((0, top, image.width, bottom)))
    needed, places = np.unique(rows.indices - top, return_inverse=True)
    lines = band.reshape(*band.shape[:2], -1)[needed]
    wide: Floats = sum(
        np.take(lines, indices, axis=1).reshape(len(lines), -1)
        * np.repeat(weights, lines.shape[2])
        for indices, weights in zip(*columns, strict=True)
    )
    return wide[places.reshape(rows.indices.shape)] * rows.weights[..., np.newaxis]


def _taps(pixels: range, wanted: int, interpolation: str) -> _Taps:
    """Return which of these pixels make each of those that are wanted."""
    last = len(pixels) - 1
    places = (np.arange(wanted, dtype=np.float32) + _HALF) * (
        np.float32(len(pixels)) / np.float32(wanted)
    )
    if interpolation == "nearest":
        nearest = pixels.start + places.astype(np.intp).clip(max=last)
        return _Taps(nearest[np.newaxis], np.ones((1, wanted), np.float32))
    places -= _HALF
    below = np.floor(places)
    weight = places - below
    around = np.stack([below, np.ceil(places)]).astype(np.intp)
    return _Taps(pixels.start + around.clip(0, last), np.stack([1 - weight, weight]))
