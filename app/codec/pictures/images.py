"""Images to arrays, pixel for pixel as Keras makes them.

The result equals `keras.utils.load_img` and `img_to_array`, or one image of
`keras.utils.image_dataset_from_directory`, and then the `preprocess_input` of
keras.applications, run on the image transposed as its EXIF orientation says. There are
three differences. TensorFlow decodes JPEGs with a less exact transform. 16-bit gray
becomes 8-bit, where load_img keeps 16 bits for models of gray images. For `load_img`, a
JPEG above 4 megapixels is decoded at a half, a quarter or an eighth of its size if that
is at least four times what the model takes: three times as fast, and in a fraction of
the memory.
"""

import itertools
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from PIL import Image

from app.codec.bounds import Check, unchecked
from app.codec.memory_budget import MemoryBudget
from app.codec.pictures import cost, files, jpeg, pixels
from app.codec.pictures.cost import Cost
from app.engines.base import Array, TensorSpec
from app.errors import TooLarge
from app.settings.image_config import DATASET, SCALES, ImageConfig

# Limits of one request: images, seconds of a core, and bytes of memory at a time.
MAX_PICTURES = 64
_MAX_SECONDS = 1.4
_MAX_MEMORY = 195 << 20
# Requests up to this memory need no budget. Short ones wait only for other short ones.
# Long ones get so large a share that a few are decoded at a time: all threads are never
# theirs.
_SMALL_MEMORY = 8 << 20
_SHORT_SECONDS, _SHORT_MEMORY = 0.15, 48 << 20
_MAX_LONG = 4
_WHAT = "large pictures"
_short = MemoryBudget(3 * _SHORT_MEMORY, 10, _WHAT, max_waiting=sys.maxsize)
_long = MemoryBudget(_MAX_MEMORY, 10, _WHAT)
# A JPEG of one scan with up to this number of pixels takes about a millisecond. It has
# fewer bytes than this.
_SMALL_PIXELS = 300 * 300
_SMALL_BYTES = 1 << 20
# Pillow hands longer files to the decoder in parts of this size.
_DECODED_AT_ONCE_BYTES = 64 << 10
_local = threading.local()


def decode(
    pictures: Sequence[bytes | memoryview],
    config: ImageConfig,
    spec: TensorSpec,
    place: str,
    suffix: str = "",
    check: Check = unchecked,
) -> Array:
    """Return image files as rows (rows, height, width, channels) in spec's dtype.

    A file that is part of a body is copied only while it is decoded.

    Raises:
        BadInput: not an image, or a damaged one; the text begins with `place`, the
            number of the image, and `suffix`.
        TooLarge: more than MAX_PICTURES, or the images cost more than one request may.
        Unavailable: too many large images at once.
        BasketError: `check`, which is called before each image and while waiting for
            memory, raised it.
    """
    if len(pictures) > MAX_PICTURES:
        raise TooLarge(
            f"{len(pictures)} pictures in one request, at most {MAX_PICTURES}"
        )
    places = [f"{place}[{index}]{suffix}" for index in range(len(pictures))]
    reads = itertools.count(1)
    seconds, memory = _cost_of_all(pictures, config, places, reads, check)
    with _memory_for(seconds, memory, check):
        rows: Array = np.empty((len(pictures), *config.shape()), spec.dtype)
        for row, picture, each in zip(rows, pictures, places, strict=True):
            check()
            _read_into(row, bytes(picture), config, each, reads)
    return rows


def small_jpeg(picture: bytes, config: ImageConfig) -> jpeg.Header | None:
    """Return the header of an image that is decoded in about a millisecond, else None.

    Decoding never waits for memory. Only the header of a JPEG in one scan can tell: a
    few bytes may hold a large image.
    """
    if len(picture) > _SMALL_BYTES:
        return None
    header = jpeg.header_of_one_scan(picture)
    if header is None:
        return None
    size, (height, width) = header.size, config.size
    # Resizing has max(size) rows of the model's width on the way.
    pixels_made = max(math.prod(size), height * width, max(size) * width)
    return header if pixels_made <= _SMALL_PIXELS else None


def decode_small(
    picture: bytes, header: jpeg.Header, config: ImageConfig, dtype: np.dtype[Any]
) -> Array | None:
    """Return the only row of an image with the header that `small_jpeg` returned.

    None: `decode` has to decode it, or to say what is wrong with it. Pillow's plugin
    calls the same decoder on the same bytes, once it has parsed the file in Python,
    which takes longer than to decode it.
    """
    mode = header.mode
    if not mode or len(picture) > _DECODED_AT_ONCE_BYTES:
        return None
    # Each thread decodes into one image, as long as the size is the same.
    if getattr(_local, "header", None) != header:
        _local.image, _local.header = Image.new(mode, header.size), header
    image = _local.image
    try:
        image.frombytes(picture, "jpeg", mode, "")
    except ValueError:
        return None
    rows: Array = np.empty((1, *config.size, len(config.mode)), dtype)
    made: pixels.Pixels
    if header == (config.size[::-1], config.mode) and config.resize != DATASET:
        made = np.frombuffer(image.tobytes(), np.uint8).reshape(rows.shape[1:])
    else:
        made = pixels.to_size(image, config)
    pixels.scale_into(rows[0], made, SCALES[config.scale])
    return rows


def _cost_of_all(
    pictures: Sequence[bytes | memoryview],
    config: ImageConfig,
    places: Sequence[str],
    reads: Iterator[int],
    check: Check,
) -> tuple[float, int]:
    """Return the seconds of all images, and the memory of the largest one.

    Raises:
        TooLarge: one request may not cost as much; the text names the image.
    """
    seconds, memory = 0.0, 0
    for picture, place in zip(pictures, places, strict=True):
        check()
        data = bytes(picture)
        if seconds + cost.before_opening(data) > _MAX_SECONDS:
            raise TooLarge(f"{place}: the picture has too many color profiles or texts")
        each = _cost_of(data, config, place, reads)
        seconds += each.seconds
        memory = max(memory, each.memory)
        if each.memory > _MAX_MEMORY:
            raise TooLarge(
                f"{place}: a {each.format} of {each.megapixels:.1f} megapixels takes "
                f"{each.memory / 1e6:.0f} MB of memory to decode, at most "
                f"{_MAX_MEMORY / 1e6:.0f} MB"
            )
        if seconds > _MAX_SECONDS:
            allowed = _MAX_SECONDS / each.seconds * each.megapixels
            raise TooLarge(
                f"{place}: with this {each.format} of {each.megapixels:.1f} megapixels "
                f"the request takes {seconds:.2f} s to decode, at most "
                f"{_MAX_SECONDS:.2f} s: {allowed:.1f} megapixels of such pictures"
            )
    return seconds, memory


def _cost_of(
    data: bytes, config: ImageConfig, place: str, reads: Iterator[int]
) -> Cost:
    header = small_jpeg(data, config)
    if header is not None:
        return cost.of_small_jpeg(header.size, data, config)
    scans = files.count_scans(data, place)
    with files.opened(data, place, reads) as image:
        stored = image.size
        files.shrink(image, config)
        return cost.of_image(image, stored, scans, data, config)


def _memory_for(
    seconds: float, memory: int, check: Check
) -> AbstractContextManager[None]:
    if seconds > _SHORT_SECONDS or memory > _SHORT_MEMORY:
        return _long.reserve(max(memory, _MAX_MEMORY // _MAX_LONG), check)
    return _short.reserve(memory, check) if memory > _SMALL_MEMORY else nullcontext()


def _read_into(
    row: Array, data: bytes, config: ImageConfig, place: str, reads: Iterator[int]
) -> None:
    """Write an image's pixels into a row, converted, resized and scaled."""
    header = small_jpeg(data, config)
    small = header and decode_small(data, header, config, row.dtype)
    if small is not None:
        row[...] = small[0]
        return
    with files.opened(data, place, reads) as image:
        files.shrink(image, config)
        resized = pixels.to_size(image, config)
    pixels.scale_into(row, resized, SCALES[config.scale])
