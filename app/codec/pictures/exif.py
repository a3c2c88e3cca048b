"""The orientation in an image's EXIF or XMP metadata.

Pillow reads all entries of EXIF, each up to the size of all of it: kilobytes become
gigabytes. Only the orientation is read here.
"""

import contextlib
import re
import struct
from collections.abc import Mapping
from typing import Any

UPRIGHT, _LAST = 1, 8
# Those that exchange width and height.
QUARTER_TURNS = (5, 6, 7, 8)
_PREFIX = b"Exif\0\0"
# The letter of struct, by the order of bytes. The head of TIFF has its number, and the
# offset of the first directory.
_ORDERS = {b"II": "<", b"MM": ">"}
_TIFF = 42
# An entry: tag, type, number of values, and the value, in 2 or 4 bytes.
_ENTRY_BYTES = 12
_VALUES = {3: "Hxx", 4: "I"}
_ORIENTATION = 0x0112
# Cameras write a few dozen.
_MAX_ENTRIES = 512
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')
# Where Pillow keeps it, by the format. ImageMagick writes the last one into PNGs.
_XMP_KEYS = ("XML:com.adobe.xmp", "xmp")
_HEX_KEY = "Raw profile type exif"
# Where `of_tiff` keeps it, and Pillow, which would rotate the image too, does not look.
_TIFF_KEY = ("TIFF", _ORIENTATION)
# A PNG may have them behind its pixels.
_PNG_MARKS = (b"eXIf", *(key.encode() for key in (_XMP_KEYS[0], _HEX_KEY)))


def orientation(info: Mapping[Any, Any]) -> int:
    """Return the orientation, 1 to 8, from the `info` of an image in Pillow.

    1 where there is none, or it is malformed.
    """
    found = info.get(_TIFF_KEY)
    if found is None:
        found = _in_exif(_exif(info))
    if found is None:
        found = _in_xmp(info)
    return UPRIGHT if found is None or not 1 <= found <= _LAST else found


def of_tiff(data: bytes) -> dict[Any, Any]:
    """Return what is to be in `info` for the orientation of a TIFF."""
    # Its first directory is laid out as EXIF is.
    return {_TIFF_KEY: _in_exif(data)}


def may_be_rotated(info: Mapping[Any, Any], data: bytes) -> bool:
    """Return whether an image may have an orientation, before its pixels are read."""
    if data.startswith(b"\x89PNG"):
        return any(mark in data for mark in _PNG_MARKS)
    return orientation(info) != UPRIGHT


def _exif(info: Mapping[Any, Any]) -> bytes:
    exif = info.get("exif")
    if isinstance(exif, bytes):
        return exif
    with contextlib.suppress(ValueError):
        # Three lines, then hexadecimal ones.
        return bytes.fromhex("".join(str(info.get(_HEX_KEY, "")).split("\n")[3:]))
    return b""


def _in_exif(exif: bytes) -> int | None:
    for _ in range(2):  # some writers repeat it
        exif = exif.removeprefix(_PREFIX)
    order = _ORDERS.get(exif[:2])
    if order is None:
        return None
    with contextlib.suppress(struct.error):
        tiff, at = struct.unpack_from(f"{order}HI", exif, 2)
        (entries,) = struct.unpack_from(f"{order}H", exif, at)
        if tiff == _TIFF:
            return _in_directory(exif, at + 2, min(entries, _MAX_ENTRIES), order)
    return None


def _in_directory(exif: bytes, begin: int, entries: int, order: str) -> int | None:
    end = min(begin + entries * _ENTRY_BYTES, len(exif))
    for at in range(begin, end - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        tag, kind, values = struct.unpack_from(f"{order}HHI", exif, at)
        if tag == _ORIENTATION and values == 1 and kind in _VALUES:
            (value,) = struct.unpack_from(order + _VALUES[kind], exif, at + 8)
            return int(value)
    return None


def _in_xmp(info: Mapping[Any, Any]) -> int | None:
    xmp = next((info[key] for key in _XMP_KEYS if info.get(key)), b"")
    text = xmp.encode(errors="replace") if isinstance(xmp, str) else xmp
    found = _XMP.search(text)
    return int(found[1]) if found else None
