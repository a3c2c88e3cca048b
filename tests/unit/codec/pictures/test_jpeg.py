"""JPEG headers: the size of images with one scan, scans, and metadata."""

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, UnidentifiedImageError

from app.codec.pictures.jpeg import (
    MAX_SCANS,
    MAX_SEGMENTS,
    header_of_one_scan,
    scans,
    without_metadata,
)
from testing.pictures import picture, saved

PLAIN = saved(picture(), "JPEG")
SIZE = (37, 23)
SCAN = PLAIN.index(b"\xff\xda")
EXIF, XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0"


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
def test_size_of_jpegs_with_one_scan(data):
    """JPEGs as encoders write them give width and height."""
    assert header_of_one_scan(data).size == SIZE


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        pytest.param(PLAIN, "RGB", id="three components"),
        pytest.param(saved(picture("L"), "JPEG"), "L", id="one component"),
        pytest.param(saved(picture("CMYK"), "JPEG"), "", id="four components"),
        pytest.param(with_exif(), "", id="EXIF"),
        pytest.param(with_segments(XMP, marker=0xE1), "", id="XMP"),
        pytest.param(with_segments(b"JFIF\0\1\1", marker=0xE0), "RGB", id="JFIF"),
        pytest.param(
            PLAIN.replace(b"\xff\xc0\0\x11\x08", b"\xff\xc1\0\x11\x0c"),
            "",
            id="12 bits",
        ),
    ],
)
def test_mode_of_jpegs_that_are_their_scan(data, mode):
    """The mode is empty where Pillow's plugin has more to read, or to refuse."""
    assert header_of_one_scan(data) == (SIZE, mode)


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
        pytest.param(with_segments(b"", marker=0xD0), id="a restart in the header"),
        pytest.param(with_segments(b"", marker=0xDE), id="a hierarchy"),
        pytest.param(with_segments(b"JFIF\0\1", marker=0xE0), id="half of JFIF"),
        pytest.param(with_segments(b"Adobe\0", marker=0xEE), id="half of Adobe"),
        pytest.param(PLAIN[:2] + b"\xff\xfe\0\1" + PLAIN[2:], id="length below 2"),
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
def test_other_files_have_no_size(data):
    """Other formats, several scans, and unusual headers give None."""
    assert header_of_one_scan(data) is None


def test_truncated_header_has_no_size():
    """A header that is truncated anywhere gives None, and raises nothing."""
    assert {header_of_one_scan(PLAIN[:end]) for end in range(SCAN + 4)} == {None}


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), max_size=4
    ),
    st.binary(max_size=8),
    st.integers(0, SCAN),
)
def test_damaged_jpeg_is_never_underestimated(edits, inserted, place):
    """Pillow never finds another size than is returned, whatever is changed."""
    data = bytearray(PLAIN)
    for at, value in edits:
        data[at] = value
    data[place:place] = inserted
    header = header_of_one_scan(bytes(data))
    if header is None:
        return
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            assert image.size == header.size
            assert header.mode in ("", image.mode)
            assert "progressive" not in image.info
    except (UnidentifiedImageError, SyntaxError, OSError, ValueError):
        pass


PROGRESSIVE = saved(picture(), "JPEG", progressive=True)
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
MANY_SCANS = PROGRESSIVE[:-2] + LAST_SCAN * MAX_SCANS + PROGRESSIVE[-2:]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(MANY_SCANS, None, id="progressive"),
        pytest.param(PLAIN[:-2] + PLAIN[SCAN:-2] * MAX_SCANS, None, id="all at once"),
        pytest.param(
            PROGRESSIVE[:-2] + LAST_SCAN[:10] * MAX_SCANS, None, id="without data"
        ),
        pytest.param(
            PLAIN[:-2] + b"\xff\x02\xff\xff" + PLAIN[SCAN:-2] * MAX_SCANS,
            None,
            id="behind a marker that is none",
        ),
        pytest.param(with_segments(*[b""] * MAX_SEGMENTS), None, id="segments"),
        pytest.param(PLAIN.replace(b"\xff\xc0", b"\xff\xc9"), None, id="arithmetic"),
        pytest.param(PLAIN[:-2] + b"\xff" * 3_000_000 + PLAIN[-2:], None, id="padding"),
        pytest.param(PLAIN[:-2] + b"\xff" * 9_999 + PLAIN[-2:], 1, id="some padding"),
        pytest.param(with_segments(*[b""] * 240), 1, id="nearly as many segments"),
        pytest.param(PLAIN + PLAIN[SCAN:-2] * MAX_SCANS, 1, id="behind its end"),
        pytest.param(with_segments(MANY_SCANS), 1, id="in a preview"),
        pytest.param(PLAIN, 1, id="baseline"),
        pytest.param(PROGRESSIVE, 10, id="as encoders write it"),
        pytest.param(MANY_SCANS[2:], 0, id="no JPEG"),
        pytest.param(b"", 0, id="nothing"),
        pytest.param(PLAIN[: SCAN + 3], 1, id="cut off"),
    ],
)
def test_scans_of_the_image_itself_count(data, expected):
    """Scans of previews do not count; too many scans or segments give None."""
    assert scans(data) == expected


def test_scans_are_found_beyond_a_megabyte():
    """A marker on the border of two parts of the search counts."""
    behind = PLAIN[: SCAN + 14]
    for size in range((1 << 20) - 20, (1 << 20) + 3):
        assert scans(behind + bytes(size) + PLAIN[SCAN:]) == 2


def test_metadata_is_removed_before_pillow_reads_it():
    """EXIF and XMP are returned, and Pillow finds no metadata in the rest."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(
        picture(), "JPEG", exif=exif, comment=b"shop", icc_profile=b"x" * 70_000
    )
    xmp = XMP + b"<x/>"
    data = data[:2] + struct.pack(">BBH", 0xFF, 0xE1, 2 + len(xmp)) + xmp + data[2:]
    rest, info = without_metadata(data)
    assert info == {"exif": exif.tobytes().removeprefix(EXIF), "xmp": b"<x/>"}
    with Image.open(io.BytesIO(rest)) as image:
        assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
        with Image.open(io.BytesIO(data)) as whole:
            assert image.tobytes() == whole.tobytes()


def test_colors_of_adobe_are_kept():
    """The segment that says how CMYK is stored is not metadata."""
    data = saved(picture("CMYK"), "JPEG")
    assert b"Adobe" in without_metadata(data)[0]


@pytest.mark.parametrize(
    "junk",
    [
        *(b"\xff", b"\xff" * 9, b"\xff\x00", b"junk", b"\xff\xd0", b"\xff\xd9"),
        *(b"\xff\xfd", b"\xff\xe0\x00\x00", b"\xff\xe0\x00\x01"),
    ],
)
@pytest.mark.parametrize("name", [EXIF, b"MPF\0", b"Photoshop 3.0\0"])
def test_metadata_behind_junk_is_removed(junk, name):
    """What Pillow skips in a header does not hide metadata from being removed."""
    segment = struct.pack(">BBH", 0xFF, 0xE1, 2 + len(name)) + name
    rest, info = without_metadata(PLAIN[:2] + junk + segment + PLAIN[2:])
    assert name not in rest
    assert len(info) == (name == EXIF)


_REFUSALS = (
    *(UnidentifiedImageError, Image.DecompressionBombError, OSError),
    *(SyntaxError, ValueError, IndexError),
)


# Some of the edits make the size larger than Pillow opens.
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(2, SCAN), st.integers(0, 255)), max_size=4),
    st.lists(st.sampled_from([0xE1, 0xE2, 0xED]), min_size=1, max_size=3),
    st.binary(max_size=4),
)
def test_pillow_never_finds_metadata_in_the_rest(edits, markers, junk):
    """Pillow reads no EXIF and no multi-picture index, whatever is changed."""
    segments = b"".join(
        struct.pack(">BBH", 0xFF, marker, 12) + EXIF + b"MPF\0" for marker in markers
    )
    data = bytearray(PLAIN[:2] + junk + segments + PLAIN[2:])
    for at, value in edits:
        data[at] = value
    rest, _ = without_metadata(bytes(data))
    try:
        with Image.open(io.BytesIO(rest), formats=("JPEG",)) as image:
            assert image.info.keys().isdisjoint(("exif", "mp", "photoshop", "xmp"))
    except _REFUSALS:
        pass


def test_another_file_is_returned_as_it_is():
    """Only JPEGs have their metadata removed."""
    data = saved(picture(), "PNG")
    assert without_metadata(data) == (data, {})
    assert without_metadata(b"") == (b"", {})
