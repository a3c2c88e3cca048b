"""What a JPEG's markers say of the work to decode it.

Segments and markers are those of ITU-T T.81, annex B.
"""

import re
import struct

_START, _SCAN = b"\xff\xd8", b"\xff\xda"
# What begins a segment: FF, its marker, and its length without these two.
_HEAD = struct.Struct(">BBH")
# Behind the head of a frame: bits, height and width.
_FRAME = struct.Struct(">BHH")
_FF, _SCAN_MARKER, _END_MARKER = 0xFF, 0xDA, 0xD9
# What begins a segment, or ends all; a decoder may pass over others within a scan.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
_MARKER_BYTES = 2
_ONE_PASS = (0xC0, 0xC1)
# All else of C0 to CF, but for tables.
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)).difference(_ONE_PASS, (0xC4, 0xCC))
# Encoders write a dozen, two for four colours.
MOST_SCANS = 64
# Of 64 KiB each at most. Pillow copies all that it has of EXIF with each that has more.
MOST_SEGMENTS = 256
# A header with more is not that of a small picture: cameras write two dozen segments
# at most, and whole thumbnails. Pillow takes microseconds for each, in Python.
_MOST_IN_HEADER = 32
_HEADER_BYTES = 8 << 10


def is_bomb(picture: bytes) -> bool:
    """Say whether a JPEG has more than MOST_SCANS, or MOST_SEGMENTS with them.

    For each scan the decoder goes through the whole picture, though it be ten bytes
    long.
    """
    at = len(_START) if picture.startswith(_START) else len(picture)
    scans = segments = 0
    while scans <= MOST_SCANS and segments <= MOST_SEGMENTS:
        found = _MARKER.search(picture, at)
        if found is None or picture[found.end() - 1] == _END_MARKER:
            return False
        segments += 1
        scans += picture[found.end() - 1] == _SCAN_MARKER
        at = found.end() + int.from_bytes(picture[found.end() : found.end() + 2])
    return True


def pixels_of_one_scan(picture: bytes) -> int | None:
    """Width times height of a JPEG that is decoded in one pass.

    None: it is no JPEG, or a progressive one or another of many scans, of which each
    costs as much; or its header is long, or unlike what encoders write.
    """
    if not picture.startswith(_START):
        return None
    try:
        return _pixels(picture)
    except struct.error:
        return None


def _pixels(picture: bytes) -> int | None:
    at, pixels = len(_START), 0
    for _ in range(_MOST_IN_HEADER):
        ff, marker, length = _HEAD.unpack_from(picture, at)
        if ff != _FF or marker in _OTHER_FRAMES or at > _HEADER_BYTES:
            break
        if marker == _SCAN_MARKER:
            more = picture.find(_SCAN, at + _MARKER_BYTES) >= 0
            # An encoder may leave the height, and so the pixels, to the end.
            return None if more else pixels or None
        if marker in _ONE_PASS:
            if pixels:
                break
            _, height, width = _FRAME.unpack_from(picture, at + _HEAD.size)
            pixels = height * width
        at += _MARKER_BYTES + length
    return None
