"""The orientation in EXIF and XMP, without reading the rest."""

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from app.codec.pictures.exif import may_be_rotated, orientation
from testing.pictures import picture, saved
from tests.support.cases import case


def entry(tag: int, kind: int, values: int, value: int, order: str = "<") -> bytes:
    last = "Hxx" if kind == 3 else "I"
    return struct.pack(f"{order}HHI{last}", tag, kind, values, value)


def exif(*entries: bytes, order: str = "<", count: int | None = None) -> bytes:
    """Return EXIF of one directory with these entries."""
    begin = b"II" if order == "<" else b"MM"
    head = struct.pack(f"{order}HIH", 42, 8, len(entries) if count is None else count)
    return b"Exif\0\0" + begin + head + b"".join(entries) + bytes(4)


def by_pillow(file: bytes) -> int:
    with Image.open(io.BytesIO(file)) as image:
        return image.getexif().get(ExifTags.Base.Orientation, 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
def test_orientation_of_exif(order, kind):
    """Both orders of bytes and both kinds of integers are read, as by Pillow."""
    for value in range(1, 9):
        entries = entry(0x010F, 4, 1, 7, order), entry(0x0112, kind, 1, value, order)
        data = exif(*entries, order=order)
        with case(value):
            assert orientation({"exif": data}) == value
            assert orientation({"exif": b"Exif\0\0" + data}) == value
            assert by_pillow(saved(picture(), "PNG", exif=data)) == value


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"II", b"rubbish!!", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0"),
        exif(),
        exif(entry(0x0112, 3, 1, 0)),
        exif(entry(0x0112, 3, 1, 9)),
        exif(entry(0x0112, 3, 2, 6)),
        exif(entry(0x0112, 2, 1, 6)),
        exif(count=9),
        exif(entry(0x0112, 3, 1, 6))[:22],
        exif(*[entry(0x9000, 3, 1, 6)] * 600, entry(0x0112, 3, 1, 6)),
    ],
)
def test_malformed_exif_is_upright(data):
    """EXIF that is cut off, of another type, or of too many entries is ignored."""
    assert orientation({"exif": data}) == 1


@given(st.binary(max_size=80), st.integers(0, 40))
def test_any_exif_gives_an_orientation(data, cut):
    """No bytes raise an error."""
    assert 1 <= orientation({"exif": data}) <= 8
    assert 1 <= orientation({"exif": exif(entry(0x0112, 3, 1, 6))[cut:] + data}) <= 8


@pytest.mark.parametrize("text", ['tiff:Orientation="6"', "<tiff:Orientation>6<"])
@pytest.mark.parametrize("key", ["xmp", "XML:com.adobe.xmp"])
def test_orientation_of_xmp_counts_without_exif(text, key):
    """XMP is read where EXIF has no orientation, in both of its forms."""
    xmp = text if key.startswith("XML") else text.encode()
    assert orientation({key: xmp}) == 6
    assert orientation({key: xmp, "exif": exif()}) == 6
    assert orientation({key: xmp, "exif": exif(entry(0x0112, 3, 1, 3))}) == 3


def test_orientation_of_imagemagick_counts():
    """ImageMagick writes EXIF as hexadecimal text into PNGs."""
    text = f"\nexif\n      44\n{exif(entry(0x0112, 3, 1, 8)).hex()}\n"
    assert orientation({"Raw profile type exif": text}) == 8
    assert orientation({"Raw profile type exif": "\n\n\nxyz"}) == 1


def test_exif_whose_entries_overlap_takes_no_memory():
    """Thousands of entries that name the same bytes are not copied for each."""
    entries = [struct.pack("<HHII", 0x9000 + n, 7, 60_000, 8) for n in range(5000)]
    data = exif(*entries) + bytes(60_000)
    tracemalloc.start()
    assert orientation({"exif": data}) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_png_may_be_rotated_by_what_follows_its_pixels():
    """Before a PNG's pixels are read, any metadata in the file counts."""
    turned = Image.Exif()
    turned[0x0112] = 6
    assert may_be_rotated({}, saved(picture(), "PNG", exif=turned))
    assert not may_be_rotated({}, saved(picture(), "PNG"))
    assert may_be_rotated({"exif": turned.tobytes()}, b"")
    assert not may_be_rotated({}, b"")
