"""Images to arrays, pixel for pixel as Keras makes them.

The result equals `keras.utils.load_img`, `img_to_array` and the `preprocess_input` of
keras.applications, run on the image transposed as its EXIF orientation says. There are
two differences. 16-bit gray becomes 8-bit, where Keras keeps 16 bits for models of gray
images. A JPEG above 4 megapixels is decoded at a half, a quarter or an eighth of its
size if that is at least four times what the model takes: three times as fast, and in a
fraction of the memory.
"""

import io
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, PngImagePlugin, UnidentifiedImageError

from app.codec import jpeg
from app.codec.bounds import Check, unchecked
from app.codec.memory_budget import MemoryBudget
from app.engines.base import Array, TensorSpec
from app.errors import BadInput, BasketError, TooLarge
from app.settings.image_config import SCALES, ImageConfig, Scale

# Limits of one request, and of one image.
MAX_PICTURES = 64
MAX_PIXELS = 40_000_000
# Pillow's other decoders are not exposed to clients.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
# Images up to this size need no share of the budget.
_SMALL_PIXELS = 300 * 300
# One of the largest images, and smaller ones beside it.
_budget = MemoryBudget(MAX_PIXELS + 10_000_000, 10, "large pictures")
# Reduced decoding averages pixels, so that they differ from load_img's: for large
# images only, in pixels, and down to so many times the model's size.
_SHRINK_ABOVE = 4_000_000
_SHRINK_TO = 4
# Reads of one file: enough for the largest PNG in the smallest chunks of encoders.
_MAX_READS = 1 << 18
# An image's comments, in bytes once decompressed; Pillow's own limit is 64 MiB.
PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20
# Malformed EXIF and the like from clients does not belong in the log.
warnings.filterwarnings("ignore", module="PIL")

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
_Pixels: TypeAlias = npt.NDArray[np.uint8]


class _File(io.BytesIO):
    """A file that limits the number of reads.

    Pillow handles each chunk in Python, and keeps most of those before the pixels.
    """

    _reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as BytesIO does.

        Raises:
            ValueError: there were too many reads.
        """
        self._reads += 1
        if self._reads > _MAX_READS:
            raise ValueError("the picture is in too many pieces")
        return super().read(size)


def decode(
    pictures: Sequence[bytes],
    config: ImageConfig,
    spec: TensorSpec,
    place: str,
    suffix: str = "",
    check: Check = unchecked,
) -> Array:
    """Return image files as rows (rows, height, width, channels) in spec's dtype.

    Raises:
        BadInput: not an image, or a damaged one; the text begins with `place`, the
            number of the image, and `suffix`.
        TooLarge: more than MAX_PICTURES or MAX_PIXELS.
        Unavailable: too many large images at once.
        BasketError: `check`, which is called before each image, raised it.
    """
    if len(pictures) > MAX_PICTURES:
        raise TooLarge(
            f"{len(pictures)} pictures in one request, at most {MAX_PICTURES}"
        )
    rows: Array = np.empty((len(pictures), *config.shape()), spec.dtype)
    for index, picture in enumerate(pictures):
        check()
        pixels = _read(picture, config, f"{place}[{index}]{suffix}")
        _scale(pixels, SCALES[config.scale], rows[index])
    return rows


def is_cheap_to_decode(picture: bytes, config: ImageConfig) -> bool:
    """Return whether decoding takes about a millisecond and never waits for memory.

    Only the header of a JPEG in one scan can tell: a few bytes may hold a large image.
    """
    height, width = config.size
    pixels = jpeg.pixels_of_one_scan(picture)
    return pixels is not None and max(pixels, height * width) <= _SMALL_PIXELS


def _read(picture: bytes, config: ImageConfig, place: str) -> _Pixels:
    """Return the image's pixels (height, width, channels), 0 to 255."""
    if not picture:
        raise BadInput(f"{place}: is empty, expected a picture")
    if jpeg.is_bomb(picture):
        raise BadInput(
            f"{place}: the JPEG has more than {jpeg.MAX_SCANS} scans, or "
            f"{jpeg.MAX_SEGMENTS} segments"
        )
    try:
        with (
            Image.open(_File(picture), formats=_FORMATS) as image,
            _memory_for(_prepare(image, config, place)),
        ):
            return _to_size(_upright(image), config)
    except (BasketError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large(place) from None
    except UnidentifiedImageError:
        raise BadInput(
            f"{place}: expected a picture of at least one pixel, as one of: "
            f"{', '.join(_FORMATS)}"
        ) from None
    except Exception:  # Pillow's decoders raise many types
        raise BadInput(f"{place}: the picture is damaged or cut off") from None


def _prepare(image: Image.Image, config: ImageConfig, place: str) -> int:
    """Choose the decoding size of an image, and return the pixels in memory."""
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise _too_large(place)
    if pixels > _SHRINK_ABOVE:
        side = _SHRINK_TO * max(config.size)
        # Has an effect only on JPEG, and never makes an image smaller than `side`.
        image.draft(None, (side, side))
    # A progressive JPEG is in memory at full size in any case.
    return pixels if "progressive" in image.info else image.width * image.height


def _memory_for(pixels: int) -> AbstractContextManager[None]:
    return nullcontext() if pixels <= _SMALL_PIXELS else _budget.reserve(pixels)


def _too_large(place: str) -> TooLarge:
    limit = MAX_PIXELS // 1_000_000
    return TooLarge(f"{place}: the picture has more than {limit} megapixels")


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        transposition = _TRANSPOSITIONS.get(orientation)
    except Exception:  # malformed EXIF does not make an image invalid
        transposition = None
    return image if transposition is None else image.transpose(transposition)


def _to_size(image: Image.Image, config: ImageConfig) -> _Pixels:
    """Convert as load_img does: first the mode, which drops alpha, then the size."""
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    height, width = config.size
    resampling = Image.Resampling[config.interpolation.upper()]
    if resampling != Image.Resampling.NEAREST and image.mode != config.mode:
        image = image.convert(config.mode)
    if image.size != (width, height):
        image = image.resize((width, height), resampling)
    # Nearest-neighbor resizing gives the same pixels in any mode, and fewer to convert.
    if image.mode != config.mode:
        image = image.convert(config.mode)
    return np.asarray(image).reshape(config.shape())


def _scale(pixels: _Pixels, scale: Scale, row: Array) -> None:
    """Write the pixels into a row of the same shape, scaled."""
    if scale == Scale():
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
