"""JPEG headers: the pixels of images with one scan, and decompression bombs."""

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError

from app.codec.jpeg import MAX_SCANS, MAX_SEGMENTS, is_bomb, pixels_of_one_scan
from testing.pictures import picture, saved

PLAIN = saved(picture(), "JPEG")
PIXELS = 37 * 23
SCAN = PLAIN.index(b"\xff\xda")


def with_segments(*segments: bytes, marker: int = 0xFE) -> bytes:
    """Return the plain JPEG with more segments in front, by default comments."""
    heads = [struct.pack(">BBH", 0xFF, marker, 2 + len(each)) for each in segments]
    pairs = zip(heads, segments, strict=True)
    return PLAIN[:2] + b"".join(head + each for head, each in pairs) + PLAIN[2:]


def with_exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(picture(), "JPEG", exif=exif)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(saved(picture("L"), "JPEG"), id="gray"),
        pytest.param(saved(picture("CMYK"), "JPEG"), id="CMYK"),
        pytest.param(saved(picture(), "JPEG", optimize=True), id="own tables"),
        pytest.param(saved(picture(), "JPEG", subsampling=0), id="no subsampling"),
        pytest.param(saved(picture(), "JPEG", restart_marker_rows=1), id="restarts"),
        pytest.param(saved(picture(), "JPEG", icc_profile=b"x" * 99), id="a profile"),
        pytest.param(with_exif(), id="EXIF"),
        pytest.param(with_segments(b"shop 7"), id="a comment"),
        pytest.param(PLAIN[: SCAN + 2 + 20], id="truncated scan"),
    ],
)
def test_pixels_of_jpegs_with_one_scan(data):
    """JPEGs as encoders write them have width times height pixels."""
    assert pixels_of_one_scan(data) == PIXELS


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"instances": [1]}', id="text"),
        pytest.param(saved(picture(), "PNG"), id="another kind"),
        pytest.param(saved(picture(), "JPEG", progressive=True), id="progressive"),
        pytest.param(PLAIN + PLAIN[SCAN:], id="scanned twice"),
        pytest.param(PLAIN[:SCAN], id="no scan"),
        pytest.param(PLAIN.replace(b"\xff\xc0", b"\xff\xc3"), id="lossless"),
        pytest.param(PLAIN.replace(b"\xff\xc0", b"\xff\xfe"), id="no frame"),
        pytest.param(
            with_segments(struct.pack(">BHHB", 8, 9, 9, 0), marker=0xC0),
            id="two frames",
        ),
        pytest.param(
            with_segments(struct.pack(">BHHB", 8, 9, 9, 0), marker=0xC2),
            id="another kind of frame, too",
        ),
        pytest.param(with_segments(*[b""] * 40), id="many segments"),
        pytest.param(with_segments(b"x" * 9000), id="a long header"),
        pytest.param(PLAIN[:2] + b"\x00" + PLAIN[2:], id="bytes between segments"),
        pytest.param(PLAIN.replace(b"\xff\xdb", b"\x00\xdb", 1), id="no marker"),
        pytest.param(
            PLAIN.replace(struct.pack(">HH", 23, 37), struct.pack(">HH", 0, 37)),
            id="height to come",
        ),
    ],
)
def test_other_files_have_no_pixel_count(data):
    """Other formats, several scans, and unusual headers give None."""
    assert pixels_of_one_scan(data) is None


def test_truncated_header_has_no_pixel_count():
    """A header that is truncated anywhere gives None, and raises nothing."""
    assert {pixels_of_one_scan(PLAIN[:end]) for end in range(SCAN + 4)} == {None}


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), max_size=4
    ),
    st.binary(max_size=8),
    st.integers(0, SCAN),
)
def test_damaged_jpeg_is_never_underestimated(edits, inserted, place):
    """Pillow never finds more pixels than are returned, whatever is changed."""
    data = bytearray(PLAIN)
    for at, value in edits:
        data[at] = value
    data[place:place] = inserted
    pixels = pixels_of_one_scan(bytes(data))
    if pixels is None:
        return
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            assert image.width * image.height == pixels
            assert "progressive" not in image.info
    except (UnidentifiedImageError, SyntaxError, OSError, ValueError):
        pass


PROGRESSIVE = saved(picture(), "JPEG", progressive=True)
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
MANY_SCANS = PROGRESSIVE[:-2] + LAST_SCAN * MAX_SCANS + PROGRESSIVE[-2:]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(MANY_SCANS, True, id="progressive"),
        pytest.param(PLAIN[:-2] + PLAIN[SCAN:-2] * MAX_SCANS, True, id="all at once"),
        pytest.param(
            PROGRESSIVE[:-2] + LAST_SCAN[:10] * MAX_SCANS, True, id="without data"
        ),
        pytest.param(
            PLAIN[:-2] + b"\xff\x02\xff\xff" + PLAIN[SCAN:-2] * MAX_SCANS,
            True,
            id="behind a marker that is none",
        ),
        pytest.param(with_segments(*[b""] * MAX_SEGMENTS), True, id="segments"),
        pytest.param(with_segments(*[b""] * 240), False, id="nearly as many segments"),
        pytest.param(PLAIN + PLAIN[SCAN:-2] * MAX_SCANS, False, id="behind its end"),
        pytest.param(with_segments(MANY_SCANS), False, id="in a preview"),
        pytest.param(PROGRESSIVE, False, id="as encoders write it"),
        pytest.param(MANY_SCANS[2:], False, id="no JPEG"),
        pytest.param(b"", False, id="nothing"),
        pytest.param(PLAIN[: SCAN + 3], False, id="cut off"),
    ],
)
def test_jpeg_bombs_are_recognized(data, expected):
    """Only scans and segments of the image itself count."""
    assert is_bomb(data) == expected
