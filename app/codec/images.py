"""Pictures to arrays, pixel for pixel as Keras makes them.

What comes out equals `keras.utils.load_img`, `img_to_array` and the
`preprocess_input` of keras.applications, run on the picture turned upright as its
EXIF says. Two things differ. 16-bit grey becomes 8-bit, where Keras keeps 16 bits for
models of grey pictures. And a JPEG above 4 megapixels is decoded at a half, a quarter
or an eighth of its size where that still is four times what the model takes: three
times as fast, and in a fraction of the memory.
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
from app.codec.memory_budget import MemoryBudget
from app.engines.base import Array, TensorSpec
from app.errors import BadInput, BasketError, TooLarge
from app.settings.image_config import SCALES, ImageConfig, Scale

# In one request, and in one picture.
MAX_PICTURES = 64
MAX_PIXELS = 40_000_000
# Decoders for other formats stay closed to what clients send.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
# As many as there are threads take no more than one large picture.
_SMALL_PIXELS = 300 * 300
# One of the largest pictures, and room for others beside it.
_budget = MemoryBudget(MAX_PIXELS + 10_000_000, 10, "large pictures")
# Shrunk pixels are means of several, and so not load_img's: for large pictures only.
_SHRINK_ABOVE = 4_000_000
_SHRINK_TO = 4
# Of one picture: those of the largest PNG, in the smallest pieces that encoders write.
_MOST_READS = 1 << 18
# A picture's comments, in bytes once decompressed; Pillow's own limit is 64 MiB.
PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20
# Odd EXIF and the like in what clients send is no news for the log.
warnings.filterwarnings("ignore", module="PIL")

_TURNS = {
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
    """A picture that can't keep Pillow busy with pieces of a few bytes.

    Pillow sees to each in Python, and keeps most that stand before the pixels.
    """

    _reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """As BytesIO.read.

        Raises:
            ValueError: it has been asked too often.
        """
        self._reads += 1
        if self._reads > _MOST_READS:
            raise ValueError("the picture is in too many pieces")
        return super().read(size)


def decode(
    pictures: Sequence[bytes],
    config: ImageConfig,
    spec: TensorSpec,
    place: str,
    suffix: str = "",
) -> Array:
    """Return the pictures as rows (rows, height, width, channels) in spec's dtype.

    Raises:
        BadInput: not a picture, or a damaged one; the text begins with `place`, the
            number of the picture, and `suffix`.
        TooLarge: more than MAX_PICTURES or MAX_PIXELS.
        Unavailable: too many large pictures at once.
    """
    if len(pictures) > MAX_PICTURES:
        raise TooLarge(
            f"{len(pictures)} pictures in one request, at most {MAX_PICTURES}"
        )
    rows: Array = np.empty((len(pictures), *config.shape()), spec.dtype)
    for index, picture in enumerate(pictures):
        pixels = _read(picture, config, f"{place}[{index}]{suffix}")
        _scale(pixels, SCALES[config.scale], rows[index])
    return rows


def is_quick(picture: bytes, config: ImageConfig) -> bool:
    """Say whether a picture becomes a row in about a millisecond, and never waits.

    The header tells, of a JPEG in one scan: a few bytes may hold a large picture.
    """
    height, width = config.size
    pixels = jpeg.pixels_of_one_scan(picture)
    return pixels is not None and max(pixels, height * width) <= _SMALL_PIXELS


def _read(picture: bytes, config: ImageConfig, place: str) -> _Pixels:
    """The picture's pixels (height, width, channels), 0 to 255."""
    if not picture:
        raise BadInput(f"{place}: is empty, expected a picture")
    if jpeg.is_bomb(picture):
        raise BadInput(
            f"{place}: the JPEG has more than {jpeg.MOST_SCANS} scans, or "
            f"{jpeg.MOST_SEGMENTS} segments"
        )
    try:
        with (
            Image.open(_File(picture), formats=_FORMATS) as image,
            _share(_prepare(image, config, place)),
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
    except Exception:  # Pillow raises whatever its many readers raise
        raise BadInput(f"{place}: the picture is damaged or cut off") from None


def _prepare(image: Image.Image, config: ImageConfig, place: str) -> int:
    """Choose how to decode a picture whose header is read; the pixels it will take."""
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise _too_large(place)
    if pixels > _SHRINK_ABOVE:
        side = _SHRINK_TO * max(config.size)
        # Does nothing for other formats than JPEG, nor where it would be too small.
        image.draft(None, (side, side))
    # A progressive JPEG is in memory as a whole in any case.
    return pixels if "progressive" in image.info else image.width * image.height


def _share(pixels: int) -> AbstractContextManager[None]:
    return nullcontext() if pixels <= _SMALL_PIXELS else _budget.lend(pixels)


def _too_large(place: str) -> TooLarge:
    limit = MAX_PIXELS // 1_000_000
    return TooLarge(f"{place}: the picture has more than {limit} megapixels")


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # EXIF that can't be read is no reason to refuse a picture
        turn = None
    return image if turn is None else image.transpose(turn)


def _to_size(image: Image.Image, config: ImageConfig) -> _Pixels:
    """What load_img does: the mode first, which drops alpha, then the size."""
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    height, width = config.size
    resampling = Image.Resampling[config.interpolation.upper()]
    if resampling != Image.Resampling.NEAREST and image.mode != config.mode:
        image = image.convert(config.mode)
    if image.size != (width, height):
        image = image.resize((width, height), resampling)
    # The nearest pixels are the same ones in any mode, and are fewer now.
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
    # Whole lines of pixels: several times as fast as channel by channel.
    lines = row.reshape(len(row), -1)
    np.multiply(pixels.reshape(len(pixels), -1), factor, out=lines, casting="same_kind")
    np.add(lines, summand, out=lines, casting="same_kind")


@lru_cache(maxsize=64)
def _line(scale: Scale, values: int) -> tuple[Array, Array]:
    """Factors and summands for a line of so many values."""
    factor = np.asarray(scale.factor, np.float32)
    summand = np.asarray(scale.summand, np.float32)
    return np.resize(factor, values), np.resize(summand, values)
