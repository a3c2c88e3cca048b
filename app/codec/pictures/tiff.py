"""The first picture of a TIFF, with no more than what its pixels need.

Pillow and libtiff read all that a TIFF's directory names. Metadata may have any size,
directories may lie in each other, a tile may be larger than the picture, and there may
be any number of them: kilobytes become gigabytes. So the directory is read here first
(TIFF 6.0, section 2), and only a checked one is left.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from app.engines.base import Array
from app.errors import BadInput, TooLarge

_HEADERS = {b"II*\0": "<", b"MM\0*": ">"}
BEGINNINGS = tuple(_HEADERS)
_HEADER_BYTES, _ENTRY_BYTES = 8, 12
# Writers use two dozen.
_MAX_ENTRIES = 512
# Pillow handles each in Python as it opens a file. Some writers make one of each row.
_MAX_PIECES = 1 << 14
# Bytes of a value, by its type.
_SHORT, _LONG = 3, 4
_BYTES = {_SHORT: 2, _LONG: 4}
_INLINE_BYTES = 4
# Tags.
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_FILL_ORDER, _STRIP_OFFSETS, _SAMPLES, _STRIP_ROWS, _STRIP_SIZES = (
    266,
    273,
    277,
    278,
    279,
)
_PLANES, _PREDICTOR, _COLORS = 284, 317, 320
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_SIZES = 322, 323, 324, 325
_EXTRA_SAMPLES, _SAMPLE_FORMAT = 338, 339
_OF_PIECES = (_STRIP_OFFSETS, _STRIP_SIZES, _TILE_OFFSETS, _TILE_SIZES)
# How many values a tag may have; one for any other, None for one of each piece.
_MOST_VALUES = {
    **dict.fromkeys((_BITS, _EXTRA_SAMPLES, _SAMPLE_FORMAT), 8),
    _COLORS: 3 << 8,
    **dict.fromkeys(_OF_PIECES, None),
}
_KEPT = frozenset(
    (
        _WIDTH,
        _HEIGHT,
        _BITS,
        _COMPRESSION,
        _PHOTOMETRIC,
        _FILL_ORDER,
        _SAMPLES,
        _STRIP_ROWS,
        _PLANES,
        _PREDICTOR,
        _TILE_WIDTH,
        _TILE_HEIGHT,
        *_MOST_VALUES,
    )
)
# Others, such as JPEG and CCITT, are decoders of their own.
NONE, _LZW, _DEFLATE, _OLD_DEFLATE, _PACKBITS = 1, 5, 8, 32946, 32773
_COMPRESSIONS = (NONE, _LZW, _DEFLATE, _OLD_DEFLATE, _PACKBITS)
# Gray from white and from black, RGB, palette, CMYK.
_PHOTOMETRICS = (0, 1, 2, 3, 5)
_BIT_COUNTS = {1, 2, 4, 8, 16}
_SEPARATE_PLANES = 2
# Of a pixel. CMYK has four; others may follow.
_MAX_SAMPLES = 8
_UNSIGNED = 1


class TiffLayout(NamedTuple):
    """How the pixels of a TIFF's first picture are stored.

    `pieces` are strips or tiles, which together may have more pixels than the picture;
    `piece_bytes` is the memory of one.
    """

    is_compressed: bool
    pieces: int
    piece_bytes: int


class _Entry(NamedTuple):
    """An entry of a directory: its bytes, and its values."""

    raw: bytes
    values: Array


def is_tiff(data: bytes) -> bool:
    """Return whether a file is a TIFF by its first bytes."""
    return data.startswith(BEGINNINGS)


def layout(data: bytes, place: str) -> TiffLayout:
    """Return how a TIFF's first picture is stored.

    Raises:
        BadInput: it is damaged, or stored in a way that is not read here; the text
            begins with `place`.
        TooLarge: it has too many strips or tiles.
    """
    try:
        return _layout(data, _directory(data), place)
    except (struct.error, KeyError, ValueError):
        raise BadInput(f"{place}: the picture is damaged or cut off") from None


def first_picture(data: bytes, place: str) -> bytes:
    """Return a TIFF with the pixels of the first picture, and no orientation.

    Raises:
        BadInput, TooLarge: as `layout`.
    """
    layout(data, place)
    return _rebuilt(data, _directory(data))


def _directory(data: bytes) -> dict[int, _Entry]:
    """Return the entries of the first directory that pixels need."""
    order = _HEADERS[data[:4]]
    (at,) = struct.unpack_from(f"{order}I", data, 4)
    (entries,) = struct.unpack_from(f"{order}H", data, at)
    if entries > _MAX_ENTRIES:
        raise ValueError
    found = {}
    for begin in range(at + 2, at + 2 + entries * _ENTRY_BYTES, _ENTRY_BYTES):
        tag, kind, count, offset = struct.unpack_from(f"{order}HHII", data, begin)
        if tag not in _KEPT:
            continue
        most = _MOST_VALUES.get(tag, 1)
        size = count * _BYTES[kind]
        start = offset if size > _INLINE_BYTES else begin + _ENTRY_BYTES - _INLINE_BYTES
        # Readers differ in which of two equal tags they take.
        is_valid = tag not in found and size > 0 and start + size <= len(data)
        if not is_valid or (most is not None and count > most):
            raise ValueError
        dtype = f"{order}u{_BYTES[kind]}"
        values = np.frombuffer(data, dtype, count, start)
        found[tag] = _Entry(data[begin : begin + _ENTRY_BYTES], values)
    return found


def _value(found: Mapping[int, _Entry], tag: int, default: int | None = None) -> int:
    if tag not in found and default is not None:
        return default
    return int(found[tag].values[0])


def _check_kind(found: Mapping[int, _Entry], bits: Sequence[int], place: str) -> None:
    """Check that Pillow reads such pixels, and with a decoder that it may use."""
    compression = _value(found, _COMPRESSION, NONE)
    if compression not in _COMPRESSIONS:
        raise BadInput(
            f"{place}: a TIFF may have its pixels uncompressed or by LZW, Deflate or "
            f"PackBits, given compression {compression}: save it as one of these, or "
            "as PNG"
        )
    formats = found[_SAMPLE_FORMAT].values if _SAMPLE_FORMAT in found else _UNSIGNED
    is_known = _value(found, _PHOTOMETRIC, 0) in _PHOTOMETRICS
    if not is_known or not _BIT_COUNTS.issuperset(bits) or np.any(formats != _UNSIGNED):
        raise BadInput(
            f"{place}: a TIFF may have gray, RGB, palette or CMYK of 1, 2, 4, 8 or 16 "
            "bits without a sign: save it as one of these, or as PNG"
        )


def _layout(data: bytes, found: Mapping[int, _Entry], place: str) -> TiffLayout:
    bits = found[_BITS].values.tolist() if _BITS in found else [1]
    _check_kind(found, bits, place)
    value = partial(_value, found)
    width, height = value(_WIDTH), value(_HEIGHT)
    samples = value(_SAMPLES, 1)
    piece_width, piece_height = width, min(value(_STRIP_ROWS, height), height)
    offsets, sizes = _STRIP_OFFSETS, _STRIP_SIZES
    if _TILE_WIDTH in found:
        piece_width, piece_height = value(_TILE_WIDTH), value(_TILE_HEIGHT)
        offsets, sizes = _TILE_OFFSETS, _TILE_SIZES
    sides = width, height, piece_width, piece_height
    if not all(sides) or not 0 < samples <= _MAX_SAMPLES:
        raise ValueError
    planes = samples if value(_PLANES, 1) == _SEPARATE_PLANES else 1
    pieces = -(-width // piece_width) * -(-height // piece_height) * planes
    if pieces > _MAX_PIECES:
        raise TooLarge(
            f"{place}: the picture has {pieces} strips or tiles, at most {_MAX_PIECES}"
        )
    begins, lengths = (found[tag].values.astype(np.int64) for tag in (offsets, sizes))
    if not len(begins) == len(lengths) == pieces:
        raise ValueError
    if (begins + lengths).max() > len(data):
        raise ValueError
    row_bytes = -(-piece_width * (samples // planes) * max(bits) // 8)
    is_compressed = value(_COMPRESSION, NONE) != NONE
    if not is_compressed:
        # Pillow would read on behind a piece. The last strip may be smaller.
        first_rows = np.arange(pieces) % (pieces // planes) * piece_height
        left = height - first_rows if offsets == _STRIP_OFFSETS else piece_height
        if np.any(lengths < row_bytes * np.minimum(piece_height, left)):
            raise ValueError
    return TiffLayout(is_compressed, pieces, row_bytes * piece_height)


def _rebuilt(data: bytes, found: Mapping[int, _Entry]) -> bytes:
    """Return the file with another directory behind it, which has only these entries.

    What they refer to stays in its place.
    """
    order = _HEADERS[data[:4]]
    padding = b"\0" * (len(data) % 2)
    at = len(data) + len(padding)
    entries = [found[tag].raw for tag in sorted(found)]
    header = data[:4] + struct.pack(f"{order}I", at)
    count = struct.pack(f"{order}H", len(entries))
    # Not a copy more, as a file has megabytes.
    rest = memoryview(data)[_HEADER_BYTES:]
    return b"".join((header, rest, padding, count, *entries, b"\0\0\0\0"))
