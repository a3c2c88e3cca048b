"""A decoded image to a model's pixels: upright, converted, resized and scaled."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from app.codec.pictures import tensorflow_resize
from app.codec.pictures.exif import QUARTER_TURNS, UPRIGHT, orientation
from app.engines.base import Array
from app.settings.image_config import DATASET, ImageConfig, Scale

Pixels: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.float32]

# Gray in the order of the bytes of a TIFF, or of PNG.
_16_BIT = ("I;16", "I;16B")
# By EXIF orientation.
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Those for which the upright image's first rows are at the end of the stored one.
_FROM_THE_END = (3, 4, 7, 8)
_UNSCALED = Scale()
# Pixels of a band.
_BAND = 1 << 18


def to_size(image: Image.Image, config: ImageConfig) -> Pixels:
    """Return the upright image as Keras does: first the mode, then the size.

    The mode drops alpha. The pixels are uint8, or float32 where they are not rounded.
    """
    image.load()
    height, width = config.size
    turn = orientation(image.info)
    if turn != UPRIGHT or (image.mode != config.mode and not converts_late(config)):
        image = _upright(image, turn, config.mode)
    box = _kept(image.size, config)
    if config.resize == DATASET:
        how = config.interpolation
        return tensorflow_resize.resized(image, box, config.size, how)
    resampling = Image.Resampling[config.interpolation.upper()]
    if image.size != (width, height):
        image = image.resize((width, height), resampling, box)
    return np.asarray(_converted(image, config.mode)).reshape(config.shape())


def _kept(size: tuple[int, int], config: ImageConfig) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the part of an image that is resized."""
    width, height = size
    if not config.crop_to_aspect_ratio:
        return 0, 0, width, height
    wanted_height, wanted_width = config.size
    kept_width = max(1, min(width, height * wanted_width // wanted_height))
    kept_height = max(1, min(height, width * wanted_height // wanted_width))
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    return left, top, left + kept_width, top + kept_height


def converts_late(config: ImageConfig) -> bool:
    """Return whether an image is resized before its mode is converted.

    Pillow's nearest gives the same pixels in any mode, and fewer to convert.
    """
    return config.resize != DATASET and config.interpolation == "nearest"


def _upright(image: Image.Image, turn: int, mode: str) -> Image.Image:
    """Return the upright image in a mode.

    Bands of rows are rotated and converted, as a third image of the full size would
    take as much memory as the first.
    """
    size = image.size[::-1] if turn in QUARTER_TURNS else image.size
    upright = Image.new(mode, size)
    top = 0
    for band in _bands(image, turn):
        upright.paste(_converted(band, mode), (0, top))
        top += band.height
    return upright


def _bands(image: Image.Image, turn: int) -> Iterator[Image.Image]:
    """Yield bands of the upright image's rows, from its top."""
    is_turned = turn in QUARTER_TURNS
    rows, width = image.size if is_turned else image.size[::-1]
    step = max(1, _BAND // width)
    for top in range(0, rows, step):
        begin, end = top, min(top + step, rows)
        if turn in _FROM_THE_END:
            begin, end = rows - end, rows - begin
        band = image.crop(
            (begin, 0, end, width) if is_turned else (0, begin, width, end)
        )
        transposition = _TRANSPOSITIONS.get(turn)
        yield band if transposition is None else band.transpose(transposition)


def _converted(image: Image.Image, mode: str) -> Image.Image:
    if image.mode in _16_BIT:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if image.mode == mode else image.convert(mode)


def scale_into(row: Array, pixels: Pixels, scale: Scale) -> None:
    """Write the pixels into a row of the same shape, scaled."""
    if scale == _UNSCALED:
        row[...] = pixels
        return
    if scale.is_bgr:
        pixels = pixels[..., ::-1]
    factor, summand = _line(scale, pixels.shape[1] * pixels.shape[2])
    # By lines of pixels: several times as fast as by channels.
    lines = row.reshape(len(row), -1)
    np.multiply(pixels.reshape(len(pixels), -1), factor, out=lines, casting="same_kind")
    np.add(lines, summand, out=lines, casting="same_kind")


@lru_cache(maxsize=64)
def _line(scale: Scale, values: int) -> tuple[Array, Array]:
    """Return the factors and summands of a line of so many values."""
    factor = np.asarray(scale.factor, np.float32)
    summand = np.asarray(scale.summand, np.float32)
    return np.resize(factor, values), np.resize(summand, values)
