"""What a JPEG's markers say about the work of decoding it.

Segments and markers are those of ITU-T T.81, annex B.
"""

import re
import struct

_START, _SCAN = b"\xff\xd8", b"\xff\xda"
# The head of a segment: FF, its marker, and its length without these two bytes.
_HEAD = struct.Struct(">BBH")
# Behind the head of a frame: bits per sample, height and width.
_FRAME = struct.Struct(">BHH")
_FF, _SCAN_MARKER, _END_MARKER = 0xFF, 0xDA, 0xD9
# Markers of segments, and the end marker. Others may stand within a scan.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
_MARKER_BYTES = 2
_ONE_PASS = (0xC0, 0xC1)
# The rest of C0 to CF, except tables.
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)).difference(_ONE_PASS, (0xC4, 0xCC))
# Encoders write a dozen, twice as many for four color components.
MAX_SCANS = 64
# Each has up to 64 KiB, and Pillow copies all EXIF so far with each further segment.
MAX_SEGMENTS = 256
# Cameras write at most two dozen segments, and whole thumbnails. Pillow takes
# microseconds for each, in Python.
_MAX_HEADER_SEGMENTS = 32
_MAX_HEADER_BYTES = 8 << 10


def is_bomb(data: bytes) -> bool:
    """Return whether a JPEG has more than MAX_SCANS scans or MAX_SEGMENTS segments.

    For each scan, even one of ten bytes, the decoder goes through the whole image.
    """
    at = len(_START) if data.startswith(_START) else len(data)
    scans = segments = 0
    while scans <= MAX_SCANS and segments <= MAX_SEGMENTS:
        found = _MARKER.search(data, at)
        if found is None or data[found.end() - 1] == _END_MARKER:
            return False
        segments += 1
        scans += data[found.end() - 1] == _SCAN_MARKER
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2])
    return True


def pixels_of_one_scan(data: bytes) -> int | None:
    """Return width times height of a JPEG that is decoded in one pass, else None.

    None: not a JPEG, a progressive one or another with several scans, or one whose
    header is malformed or longer than encoders write it.
    """
    if not data.startswith(_START):
        return None
    try:
        return _pixels(data)
    except struct.error:
        return None


def _pixels(data: bytes) -> int | None:
    at, pixels = len(_START), 0
    for _ in range(_MAX_HEADER_SEGMENTS):
        ff, marker, length = _HEAD.unpack_from(data, at)
        if ff != _FF or marker in _OTHER_FRAMES or at > _MAX_HEADER_BYTES:
            break
        if marker == _SCAN_MARKER:
            has_more_scans = data.find(_SCAN, at + _MARKER_BYTES) >= 0
            # A height of 0 means that it follows the scan: the pixels are unknown.
            return None if has_more_scans else pixels or None
        if marker in _ONE_PASS:
            if pixels:
                break
            _, height, width = _FRAME.unpack_from(data, at + _HEAD.size)
            pixels = height * width
        at += _MARKER_BYTES + length
    return None
