"""What a JPEG's markers say about the work of decoding it.

Segments and markers are those of ITU-T T.81, annex B.
"""

import math
import re
import struct
from typing import NamedTuple

_START, _SCAN = b"\xff\xd8", b"\xff\xda"
# The head of a segment: FF, its marker, and its length without these two bytes.
_HEAD = struct.Struct(">BBH")
# Behind the head of a frame: bits per sample, height, width and components.
_FRAME = struct.Struct(">BHHB")
# Pillow's mode, by the bits per sample and the components.
_MODES = {(8, 1): "L", (8, 3): "RGB"}
_FF, _SCAN_MARKER, _END_MARKER = 0xFF, 0xDA, 0xD9
# Markers of segments, and the end marker. Others may stand within a scan.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
_SEARCH_BYTES = 1 << 20
_ANY_MARKER = re.compile(rb"\xff[\x01-\xfe]")
_FIRST_MARKER = 0xC0
_WITHOUT_LENGTH = frozenset((0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))
_MARKER_BYTES = 2
_ONE_PASS = (0xC0, 0xC1)
# Segments that may stand before the only scan beside a frame, and their least length:
# tables, those of applications, and comments. All readers take their lengths alike, but
# Pillow refuses one of JFIF (E0) or Adobe (EE) that ends with its name.
_HEADER_SEGMENTS = {
    **dict.fromkeys((0xC4, 0xDB, 0xDD, *range(0xE1, 0xF0), 0xFE), 2),
    **dict.fromkeys((0xE0, 0xEE), 9),
}
_ARITHMETIC = (0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
# Encoders write a dozen, twice as many for four color components.
MAX_SCANS = 64
# Each has up to 64 KiB.
MAX_SEGMENTS = 256
# Any number of these bytes may stand before a marker; encoders write a few. Metadata
# and what follows a picture may have more of them.
_PADDING, _MAX_PADDING = b"\xff\xff", 1 << 20
# Segments of applications, and comments. What decoding needs is in the first, JFIF's,
# and in Adobe's.
_METADATA = frozenset((*range(0xE1, 0xF0), 0xFE)) - {0xEE}
_APP1 = 0xE1
_APP1_HEAD = b"\xff\xe1"
# What Pillow calls the metadata in segments of APP1, which begin with these names.
_NAMES = {"exif": b"Exif\0\0", "xmp": b"http://ns.adobe.com/xap/1.0/\0"}
# Cameras write at most two dozen segments, and whole thumbnails. Pillow takes
# microseconds for each, in Python.
_MAX_HEADER_SEGMENTS = 32
_MAX_HEADER_BYTES = 8 << 10


class Header(NamedTuple):
    """The size of a JPEG as (width, height), and Pillow's mode of its pixels.

    `mode` is "" where the scan is not all of the image: it may be rotated by EXIF or
    XMP, or has other components than gray or three colors.
    """

    size: tuple[int, int]
    mode: str


def scans(data: bytes) -> int | None:
    """Return the number of a JPEG's scans, 0 for another file.

    None: it has more than MAX_SCANS scans or MAX_SEGMENTS segments, is arithmetic
    coded, or has megabytes of padding. For each scan, even one of ten bytes, the
    decoder goes through the whole image; in arithmetic coding a byte may take a
    microsecond; and Pillow reads padding again with each further 64 KiB of the file.
    """
    if data.startswith(_START) and data.count(_PADDING) > _MAX_PADDING:
        return None
    at = len(_START) if data.startswith(_START) else len(data)
    found_scans = segments = 0
    while found_scans <= MAX_SCANS and segments <= MAX_SEGMENTS:
        found = _next_marker(data, at)
        if found is None or data[found.end() - 1] == _END_MARKER:
            return found_scans
        marker = data[found.end() - 1]
        if marker in _ARITHMETIC:
            break
        segments += 1
        found_scans += marker == _SCAN_MARKER
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
    return None


def _next_marker(data: bytes, at: int) -> re.Match[bytes] | None:
    """Return the next marker; between parts of the search other threads may run."""
    while at < len(data):
        found = _MARKER.search(data, at, at + _SEARCH_BYTES + 1)
        if found is not None:
            return found
        at += _SEARCH_BYTES
    return None


def without_metadata(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return a file without the metadata before its first scan, and its EXIF and XMP.

    Pillow takes up to seconds and gigabytes for metadata of 64 KiB. The segments are
    those that it finds. Another file than a JPEG is returned as it is.
    """
    if not data.startswith(_START):
        return data, {}
    info: dict[str, bytes] = {}
    # Not copies, as a file has megabytes.
    view, at = memoryview(data), len(_START)
    parts = [view[:at]]
    for _ in range(MAX_SEGMENTS):
        found = _ANY_MARKER.search(data, at)
        if found is None:
            break
        at, end, marker = found.start(), found.end(), data[found.end() - 1]
        if marker == _SCAN_MARKER or marker < _FIRST_MARKER:
            parts.append(view[at:])
            break
        if marker not in _WITHOUT_LENGTH:
            end += int.from_bytes(data[end : end + 2])
        if marker not in _METADATA:
            parts.append(view[at:end])
        elif marker == _APP1:
            segment = data[at:end]
            for key, name in _NAMES.items():
                if segment.startswith(name, _HEAD.size):
                    info.setdefault(key, segment[_HEAD.size + len(name) :])
        at = end
    is_whole = sum(map(len, parts)) == len(data)
    return data if is_whole else b"".join(parts), info


def header_of_one_scan(data: bytes) -> Header | None:
    """Return the header of a JPEG that is decoded in one pass, else None.

    None: not a JPEG, a progressive one or another with several scans, or one whose
    header is malformed or longer than encoders write it.
    """
    if not data.startswith(_START):
        return None
    try:
        return _header(data)
    except struct.error:
        return None


def _header(data: bytes) -> Header | None:
    at, size, mode = len(_START), (0, 0), ""
    for _ in range(_MAX_HEADER_SEGMENTS):
        ff, marker, length = _HEAD.unpack_from(data, at)
        if ff != _FF or at > _MAX_HEADER_BYTES:
            break
        if marker == _SCAN_MARKER:
            has_more_scans = data.find(_SCAN, at + _MARKER_BYTES) >= 0
            # A height of 0 means that it follows the scan: the size is unknown.
            if has_more_scans or 0 in size:
                break
            return Header(size, "" if _APP1_HEAD in data[:at] else mode)
        if marker in _ONE_PASS:
            if any(size):
                break
            bits, height, width, components = _FRAME.unpack_from(data, at + _HEAD.size)
            size, mode = (width, height), _MODES.get((bits, components), "")
        elif length < _HEADER_SEGMENTS.get(marker, math.inf):
            break
        at += _MARKER_BYTES + length
    return None
