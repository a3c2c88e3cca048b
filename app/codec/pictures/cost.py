"""What decoding an image costs, told by its header and the size of its file.

docs/vision.md has the measurements. The figures here are upper bounds: those of the
worst pixels and bytes, on one core of the machine that measured them.
"""

import math
from typing import NamedTuple

from PIL import Image

from app.codec.pictures import exif, tiff
from app.codec.pictures.pixels import converts_late
from app.settings.image_config import DATASET, ImageConfig

_NS = 1e-9
_MEGA = 1e6
# Of any file: opened twice, converted, scaled.
_FILE_S = 0.0003
# Pillow unpacks a PNG's color profiles and texts, each up to 1 MiB, at each opening.
_PNG, _UNPACKED, _UNPACKED_S = b"\x89PNG", (b"iCCP", b"zTXt", b"iTXt"), 0.006
# A JPEG is decoded in blocks of up to 4 x 4 times 8 x 8 pixels.
_BLOCK = 32
_LOSSLESS = b"VP8L"
# Of a TIFF: for each byte of its file, each unpacked one, and each strip or tile.
_TIFF_BYTE_NS, _UNPACKED_NS, _PIECE_NS = 6, 4, 1_000
# Pillow handles each strip or tile in Python if they are uncompressed.
_PLAIN_BYTE_NS, _PLAIN_PIECE_NS = 1, 15_000
# Modes of Pillow that have other than 4 bytes for each pixel.
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2}
# ns for each pixel in memory.
_ROTATE_NS, _CONVERT_NS = 6.5, 5.0
# The same for resizing; nearest takes only the pixels it needs.
_RESIZE_NS = {
    "nearest": 0.1,
    "box": 2.0,
    "bilinear": 2.8,
    "hamming": 2.8,
    "bicubic": 5.5,
    "lanczos": 8.0,
}
# The same as tf.image.resize does it: copied in bands. ns for each pixel that is made.
_COPY_NS, _MAKE_NS = 2.0, 40
# Memory of the bands in which an image is rotated and converted, or resized.
_BANDS_BYTES, _RESIZE_BANDS_BYTES = 3 << 20, 6 << 20


class Cost(NamedTuple):
    """Of an image: seconds of a core, and the most bytes of memory at a time."""

    format: str
    megapixels: float
    seconds: float
    memory: int


class _Rate(NamedTuple):
    """Time and memory of decoding one format.

    ns for each pixel as it is stored, for each byte of the file, and for each pixel as
    it is decoded, which may be fewer for JPEG. Bytes for each stored pixel beside the
    image, for each decoded one, and for its copy. `block` is the side of what is
    decoded at a time.
    """

    name: str
    stored_ns: float
    byte_ns: float
    decoded_ns: float = 0
    stored_bytes: float = 0
    decoded_bytes: float = 4
    copied_bytes: int = 0
    block: int = 1


_JPEG = _Rate("JPEG", 1, 12.5, 2.5, block=_BLOCK)
# Pillow decodes these in Python.
_RLE_BMP = _Rate("BMP of run lengths", 130, 0, 0, 3)
_SLOW_PNG = _Rate("PNG, interlaced or of 16 bits,", 24, 12)
_RATES = {
    "JPEG": _JPEG,
    "PNG": _Rate("PNG", 6, 12),
    "GIF": _Rate("GIF", 4, 9),
    "BMP": _Rate("BMP", 4, 0),
    "PPM": _Rate("PPM", 4, 0),
    "TIFF": _Rate("TIFF", 3, 0),
    "WEBP": _Rate("WebP", 16, 60, 0, 12),
}
_LOSSLESS_WEBP = _Rate("lossless WebP", 16, 8, 0, 12)


def before_opening(data: bytes) -> float:
    """Return the seconds that Pillow may take for a file's header."""
    if not data.startswith(_PNG):
        return _FILE_S
    return _FILE_S + _UNPACKED_S * sum(map(data.count, _UNPACKED))


def of_image(
    image: Image.Image,
    stored: tuple[int, int],
    scans: int,
    data: bytes,
    config: ImageConfig,
) -> Cost:
    """Return the cost of an opened image: its decoding, conversion and resizing.

    `stored` is the size in the file; `image.size` is that of decoding, which may be
    less for JPEG. `scans` are those of a JPEG.
    """
    rate = _rate(image, scans, data)
    copy_ns = 0.0
    if image.mode != config.mode and not converts_late(config):
        copy_ns += _CONVERT_NS
    if exif.may_be_rotated(image.info, data):
        copy_ns += _ROTATE_NS
    rate = rate._replace(
        decoded_ns=rate.decoded_ns + copy_ns,
        decoded_bytes=_MODE_BYTES.get(image.mode, 4),
        copied_bytes=_MODE_BYTES.get(config.mode, 4) if copy_ns else 0,
    )
    return _cost(rate, stored, image.size, data, config)


def of_small_jpeg(size: tuple[int, int], data: bytes, config: ImageConfig) -> Cost:
    """Return the cost of a JPEG of one scan that is decoded at its full size."""
    decoded_ns = _JPEG.decoded_ns + _CONVERT_NS + _ROTATE_NS
    rate = _JPEG._replace(decoded_ns=decoded_ns, copied_bytes=4)
    return _cost(rate, size, size, data, config)


def _cost(
    rate: _Rate,
    stored: tuple[int, int],
    size: tuple[int, int],
    data: bytes,
    config: ImageConfig,
) -> Cost:
    # Whole blocks, as a narrow JPEG has many.
    stored_pixels = math.prod(-(-side // rate.block) * rate.block for side in stored)
    pixels = math.prod(size)
    resize_ns, resize_bytes = _resizing(size, config)
    ns = (
        rate.stored_ns * stored_pixels
        + rate.byte_ns * len(data)
        + rate.decoded_ns * pixels
        + resize_ns
    )
    # What a decoder holds is free before the image is copied.
    beside = max(rate.stored_bytes * stored_pixels, rate.copied_bytes * pixels)
    bands = min(_BANDS_BYTES, 2 * rate.copied_bytes * pixels)
    memory = rate.decoded_bytes * pixels + beside + bands + resize_bytes + len(data)
    seconds = before_opening(data) + _NS * ns
    return Cost(rate.name, math.prod(stored) / _MEGA, seconds, round(memory))


def _resizing(size: tuple[int, int], config: ImageConfig) -> tuple[float, int]:
    """Return the ns and bytes of resizing decoded pixels."""
    pixels = math.prod(size)
    if config.resize == DATASET:
        made = math.prod(config.size)
        # Each value is a float32.
        bands = min(_RESIZE_BANDS_BYTES, 10 * pixels + 60 * made)
        ns = _COPY_NS * pixels + _MAKE_NS * made
        return ns, 4 * math.prod(config.shape()) + bands
    # Upright, either side may be the height. Pillow resizes all rows to the model's
    # width before it resizes columns.
    narrow = config.size[1] * max(size)
    return _RESIZE_NS[config.interpolation] * (pixels + 2 * narrow), 4 * narrow


def _rate(image: Image.Image, scans: int, data: bytes) -> _Rate:
    rate = _RATES[image.format or ""]
    # The decoder's name, and its arguments, such as a mode of 16 bits.
    decoder, *_, arguments = next(iter(getattr(image, "tile", ())), ("", ""))
    if rate is _JPEG:
        if scans > 1 or "progressive" in image.info:
            # In memory as coefficients of 2 bytes, which each scan goes through.
            coefficients = 2 * len(image.getbands())
            return rate._replace(
                name=f"JPEG of {scans} scans",
                stored_ns=2 + 0.8 * scans,
                byte_ns=30,
                stored_bytes=coefficients,
            )
    elif image.format == "WEBP" and data[12:16] == _LOSSLESS:
        return _LOSSLESS_WEBP
    elif image.format == "PNG" and (
        "16" in str(arguments) or "interlace" in image.info
    ):
        return _SLOW_PNG
    elif decoder == "bmp_rle":
        return _RLE_BMP
    elif image.format == "TIFF":
        return _tiff_rate(rate, tiff.layout(data, ""), math.prod(image.size), data)
    return rate


def _tiff_rate(rate: _Rate, layout: tiff.TiffLayout, pixels: int, data: bytes) -> _Rate:
    """Return the rate of a TIFF, whose tiles may be larger than the picture."""
    byte_ns, piece_ns = _PLAIN_BYTE_NS, _PLAIN_PIECE_NS
    if layout.is_compressed:
        byte_ns, piece_ns = _TIFF_BYTE_NS, _PIECE_NS
    unpacked = layout.pieces * layout.piece_bytes
    ns = _UNPACKED_NS * unpacked + piece_ns * layout.pieces
    return rate._replace(
        stored_ns=rate.stored_ns + ns / pixels,
        byte_ns=byte_ns,
        # Pillow gets a copy of the file.
        stored_bytes=(layout.piece_bytes + len(data)) / pixels,
    )
