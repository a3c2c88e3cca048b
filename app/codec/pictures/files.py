"""Image files opened with Pillow, which raises many types of errors for bad ones."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image, PngImagePlugin, UnidentifiedImageError

from app.codec.pictures import exif, jpeg, tiff
from app.errors import BadInput, BasketError, TooLarge
from app.settings.image_config import DATASET, ImageConfig

MAX_PIXELS = 40_000_000
# That of JPEG and GIF. Of other formats Pillow would copy lines of megabytes often.
_MAX_SIDE = 65_535
# Pillow's other decoders are not exposed to clients. It gets TIFF and PPM only once
# their headers have been checked here.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
_CHECKED_FORMATS = ("TIFF", "PPM")
# Gray or RGB in bytes; of other values Pillow decodes each in Python.
_GAP = rb"(?:\s|#[^\r\n]*+[\r\n])++"
_PPM = re.compile(rb"P[56]" + _GAP + rb"\d+" + _GAP + rb"\d+" + _GAP + rb"255\s")
_PPM_HEADER_BYTES = 1 << 10
# The first bytes of all formats, and of SVG, EPS and ICO, which are refused as such.
# No JSON begins with them.
BEGINNINGS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n",
    b"GIF87a",
    b"GIF89a",
    b"RIFF",
    b"BM",
    b"P5",
    b"P6",
    *tiff.BEGINNINGS,
    b"<svg",
    b"<?xml",
    b"%!PS",
    b"\0\0\1\0",
)
# Reads of all files of a request: several times those of the largest PNG in the
# smallest chunks of encoders.
_MAX_READS = 1 << 17
# Reduced decoding averages pixels, so that they differ from load_img's: for large
# images only, in pixels, and down to so many times the model's size.
_SHRINK_ABOVE = 4_000_000
_SHRINK_TO = 4
# An image's comments, in bytes once decompressed; Pillow's own limit is 64 MiB.
PngImagePlugin.MAX_TEXT_MEMORY = 1 << 20
# Malformed EXIF and the like from clients does not belong in the log.
warnings.filterwarnings("ignore", module="PIL")


class _File(io.BytesIO):
    """A file that counts its reads.

    Pillow handles each chunk in Python, and keeps most of those before the pixels.
    """

    def __init__(self, data: bytes, place: str, reads: Iterator[int]) -> None:
        super().__init__(data)
        self._place = place
        self._reads = reads

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as BytesIO does.

        Raises:
            TooLarge: there were too many reads.
        """
        if next(self._reads) > _MAX_READS:
            raise TooLarge(
                f"{self._place}: the request's pictures are in too many pieces"
            )
        return super().read(size)


@contextmanager
def opened(data: bytes, place: str, reads: Iterator[int]) -> Iterator[Image.Image]:
    """Open an image file for a block, which may decode it.

    `reads` numbers the reads of all files of a request, from 1.

    Raises:
        BadInput: not an image, or a damaged one; the text begins with `place`.
        TooLarge: the image has more than MAX_PIXELS or a side that is too long, or the
            files too many reads.
    """
    if not data:
        raise BadInput(f"{place}: is empty, expected a picture")
    data, formats, info = _prepared(data, place)
    try:
        with Image.open(_File(data, place, reads), formats=formats) as image:
            if image.width * image.height > MAX_PIXELS:
                raise _too_many_pixels(place)
            if max(image.size) > _MAX_SIDE:
                raise TooLarge(
                    f"{place}: the picture is {image.width} x {image.height} pixels, "
                    f"each side may have {_MAX_SIDE}"
                )
            image.info.update(info)
            yield image
    except (BasketError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(place) from None
    except UnidentifiedImageError:
        raise BadInput(
            f"{place}: expected a picture of at least one pixel, as one of: "
            f"{', '.join((*_FORMATS, *_CHECKED_FORMATS))}"
        ) from None
    except Exception:  # Pillow's decoders raise many types
        raise BadInput(f"{place}: the picture is damaged or cut off") from None


def _prepared(data: bytes, place: str) -> tuple[bytes, tuple[str, ...], dict[Any, Any]]:
    """Return a file as Pillow may read it, in which formats, and more of its `info`."""
    if tiff.is_tiff(data):
        return tiff.first_picture(data, place), ("TIFF",), exif.of_tiff(data)
    if _PPM.match(data[:_PPM_HEADER_BYTES]):
        return data, ("PPM",), {}
    data, info = jpeg.without_metadata(data)
    return data, _FORMATS, info


def count_scans(data: bytes, place: str) -> int:
    """Return the number of a JPEG's scans, 0 for another file.

    Raises:
        BadInput: no encoder writes such a JPEG.
    """
    scans = jpeg.scans(data)
    if scans is None:
        raise BadInput(
            f"{place}: the JPEG has more than {jpeg.MAX_SCANS} scans or "
            f"{jpeg.MAX_SEGMENTS} segments, is arithmetic coded, or mostly padding"
        )
    return scans


def shrink(image: Image.Image, config: ImageConfig) -> None:
    """Let a large JPEG be decoded at a part of its size, for a model's size.

    Not where shrinking must not average pixels.
    """
    if config.resize != DATASET and image.width * image.height > _SHRINK_ABOVE:
        side = _SHRINK_TO * max(config.size)
        # Has an effect only on JPEG, and never makes an image smaller than `side`.
        image.draft(None, (side, side))


def _too_many_pixels(place: str) -> TooLarge:
    limit = MAX_PIXELS // 1_000_000
    return TooLarge(f"{place}: the picture has more than {limit} megapixels")
