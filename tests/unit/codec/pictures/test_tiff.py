"""TIFF files: their pixels, and what a hostile one may cost."""

import contextlib
import io
import itertools
import struct
import time
import tracemalloc
import zlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.codec.pictures import cost, files, images, tiff
from app.engines.base import TensorSpec
from app.errors import BadInput, TooLarge
from app.settings.image_config import ImageConfig
from testing.pictures import colors, picture, saved, tiff_of

CONFIG = ImageConfig((23, 37), "RGB", "none", "nearest", ())
COMPRESSIONS = [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"]
DEFLATE = {259: [8]}
GRAY = {258: [8], 262: [1], 277: [1]}
DAMAGED = "picture[0]: the picture is damaged or cut off"


def decoded(data, config=CONFIG):
    spec = TensorSpec("x", np.dtype("u1"), config.shape())
    return images.decode([data], config, spec, "picture")[0]


def refusal(data, error=BadInput):
    """Return the text of a refusal, which takes little time and memory."""
    tracemalloc.start()
    began_at = time.thread_time()
    with pytest.raises(error) as raised:
        decoded(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.thread_time() - began_at < 0.5
    assert peak < 3 * len(data) + (4 << 20)
    return str(raised.value)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_compression_gives_the_same_pixels(compression, order):
    """Uncompressed, LZW, Deflate and PackBits, in one strip or in many."""
    pixels = colors()
    for strip_bytes in (37 * 3, 5 * 37 * 3, 1 << 20):
        data = saved(pixels, "TIFF", compression=compression, strip_size=strip_bytes)
        np.testing.assert_array_equal(decoded(data), pixels)
    packed = zlib.compress if compression == "tiff_adobe_deflate" else bytes
    tags = DEFLATE if compression == "tiff_adobe_deflate" else {}
    data = tiff_of(37, 23, packed(pixels.tobytes()), tags=tags, order=order)
    np.testing.assert_array_equal(decoded(data), pixels)


@pytest.mark.parametrize("tags", [{}, DEFLATE], ids=["plain", "deflate"])
@pytest.mark.parametrize("side", [16, 64])
def test_tiles_are_put_together(tags, side):
    """Tiles that are smaller or larger than the picture, which they fill up."""
    pixels = colors()
    across, down = -(-37 // side), -(-23 // side)
    padded = np.zeros((down * side, across * side, 3), np.uint8)
    padded[:23, :37] = pixels
    blocks = padded.reshape(down, side, across, side, 3).swapaxes(1, 2)
    pieces = [each.tobytes() for each in blocks.reshape(-1, side, side, 3)]
    packed = [zlib.compress(each) for each in pieces] if tags else pieces
    data = tiff_of(37, 23, *packed, tags={322: [side], 323: [side], **tags})
    np.testing.assert_array_equal(decoded(data), pixels)


@pytest.mark.parametrize("tags", [{}, DEFLATE], ids=["plain", "deflate"])
def test_separate_planes_are_put_together(tags):
    """Red, green and blue may be stored one after the other."""
    pixels = colors()
    planes = [pixels[..., each].tobytes() for each in range(3)]
    packed = [zlib.compress(each) for each in planes] if tags else planes
    data = tiff_of(37, 23, *packed, tags={284: [2], **tags})
    np.testing.assert_array_equal(decoded(data), pixels)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_16_bit_gray_becomes_8_bit(order, interpolation):
    """The upper 8 bits are kept, in both orders of bytes."""
    values = np.arange(0, 65536, 77, dtype=f"{order}u2")[:851].reshape(23, 37)
    data = tiff_of(37, 23, values.tobytes(), tags={**GRAY, 258: [16]}, order=order)
    config = replace(CONFIG, interpolation=interpolation, mode="L")
    np.testing.assert_array_equal(decoded(data, config)[..., 0], values >> 8)


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_once(orientation, compression):
    """Pillow itself rotates a TIFF, and load_img with it."""
    tags = {274: orientation}
    data = saved(picture(), "TIFF", compression=compression, tiffinfo=tags)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"))
    config = replace(CONFIG, size=expected.shape[:2])
    np.testing.assert_array_equal(decoded(data, config), expected)


def test_first_page_of_several_is_the_picture():
    """As of an animation."""
    pages = {"save_all": True, "append_images": [picture(seed=1)]}
    data = saved(picture(), "TIFF", **pages)
    np.testing.assert_array_equal(decoded(data), colors())


def test_metadata_is_left_out():
    """Pillow gets no profile, no EXIF and no texts."""
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"comment"
    about = {270: "a text", 700: b'tiff:Orientation="6"', 305: "x" * 1000}
    data = saved(picture(), "TIFF", tiffinfo=about, icc_profile=b"x" * 500, exif=exif)
    with files.opened(data, "picture", itertools.count(1)) as image:
        assert not {270, 700, 305, 34675, 34665} & {*image.tag_v2}
        assert "icc_profile" not in image.info
    np.testing.assert_array_equal(decoded(data), colors())


@pytest.mark.parametrize("order_of_bits", [1, 2])
def test_strips_may_share_their_bytes(order_of_bits):
    """Megabytes that each of many strips claims are read once, if at all."""
    strip = zlib.compress(bytes(37 * 3))
    if order_of_bits == 2:
        strip = bytes(int(f"{byte:08b}"[::-1], 2) for byte in strip)
    strip += bytes(10_000_000)
    tags = {**DEFLATE, 278: [1], 266: [order_of_bits]}
    rows = 500
    data = tiff_of(37, rows, *[b""] * rows, tags=tags, lengths=[len(strip)] * rows)
    began_at = time.thread_time()
    assert not decoded(data + strip).any()
    assert time.thread_time() - began_at < 0.5


# Refusals.


def _directory(entries, count=None, following=b""):
    head = struct.pack("<4sIH", b"II*\0", 8, len(entries) if count is None else count)
    packed = b"".join(struct.pack("<HHII", *each) for each in entries)
    return head + packed + bytes(4) + following


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"II*\0", id="header"),
        pytest.param(b"II*\0\xff\xff\xff\x7f", id="directory behind the end"),
        pytest.param(_directory([], 0), id="no entries"),
        pytest.param(_directory([(256, 3, 1, 5)] * 20, 65535), id="65535 entries"),
        pytest.param(_directory([(256, 3, 1, 5)] * 2), id="a tag twice"),
        pytest.param(_directory([(256, 5, 1, 8)]), id="a width of another type"),
        pytest.param(_directory([(273, 4, 2**32 - 1, 8)]), id="4 G of offsets"),
        pytest.param(_directory([(258, 3, 60, 8)], following=bytes(200)), id="60 bits"),
        pytest.param(tiff_of(0, 5, b"abc"), id="no columns"),
        pytest.param(tiff_of(5, 5, bytes(75), lengths=[76]), id="strip behind the end"),
        pytest.param(tiff_of(5, 5, bytes(75), tags={278: [1]}), id="too few strips"),
        pytest.param(tiff_of(5, 5, bytes(75), bytes(75)), id="too many strips"),
        pytest.param(tiff_of(5, 5, bytes(74)), id="too few pixels"),
        pytest.param(tiff_of(5, 5, b"rubbish", tags=DEFLATE), id="no deflate"),
        pytest.param(tiff_of(5, 5, b"rubbish", tags={259: [5]}), id="no LZW"),
        pytest.param(
            tiff_of(5, 5, zlib.compress(bytes(75))[:-8], tags=DEFLATE),
            id="half a strip",
        ),
        pytest.param(tiff_of(5, 5, bytes(75), tags={277: [65535]}), id="65535 samples"),
        pytest.param(
            tiff_of(5, 5, zlib.compress(bytes(75)), tags={**DEFLATE, 317: [3]}),
            id="predictor of floats",
        ),
    ],
)
def test_damaged_tiff_is_refused(data):
    """Before its pixels are decoded where the header tells, and never half."""
    assert refusal(data) == DAMAGED


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (
            {259: [7]},
            "uncompressed or by LZW, Deflate or PackBits, given compression 7",
        ),
        (
            {259: [4]},
            "uncompressed or by LZW, Deflate or PackBits, given compression 4",
        ),
        ({258: [32], 262: [1], 277: [1], 339: [3]}, "1, 2, 4, 8 or 16 bits without a"),
        ({258: [8], 262: [1], 277: [1], 339: [2]}, "1, 2, 4, 8 or 16 bits without a"),
        ({258: [12], 262: [1], 277: [1]}, "1, 2, 4, 8 or 16 bits without a sign: save"),
        ({262: [8]}, "a TIFF may have gray, RGB, palette or CMYK of"),
        ({262: [6]}, "a TIFF may have gray, RGB, palette or CMYK of"),
    ],
    ids=["JPEG", "CCITT", "floats", "signs", "12 bits", "LAB", "YCbCr"],
)
def test_other_kind_of_tiff_is_refused(tags, text):
    """The refusal says what may be sent instead."""
    assert text in refusal(tiff_of(5, 5, bytes(400), tags=tags))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (tiff_of(65535, 65535, b"a", tags=DEFLATE), "more than 40 megapixels"),
        (tiff_of(2**32 - 1, 1, b"a", tags=DEFLATE), "more than 40 megapixels"),
        (
            tiff_of(70000, 1, bytes(210000)),
            "70000 x 1 pixels, each side may have 65535",
        ),
        (
            tiff_of(9, 9, b"a", tags={**DEFLATE, 322: [65520], 323: [65520]}),
            "MB of memory to decode",
        ),
        (
            tiff_of(6300, 6300, b"a", tags=DEFLATE),
            "MB of memory to decode",
        ),
        (
            tiff_of(2, 60000, *[b"ab"] * 180000, tags={278: [1], 284: [2]}),
            "the picture has 180000 strips or tiles, at most 16384",
        ),
    ],
    ids=["huge", "wide", "side", "a tile of 12 GB", "a strip", "180,000 strips"],
)
def test_tiff_that_costs_too_much_is_refused(data, text):
    """The header tells: nothing is unpacked."""
    assert text in refusal(data, TooLarge)


def test_values_of_metadata_are_not_read():
    """Megabytes of numbers in each entry, and in a directory within, take no memory."""
    values = bytes(1 << 20)
    tags = {tag: (5, len(values) // 8) for tag in range(34665, 34965)}
    data = bytearray(tiff_of(37, 23, colors().tobytes()))
    (entries,) = struct.unpack_from("<H", data, 8)
    old = bytes(data[10 : 10 + 12 * entries])
    at = len(data) + len(values)
    more = b"".join(
        struct.pack("<HHII", tag, kind, count, len(data))
        for tag, (kind, count) in tags.items()
    )
    struct.pack_into("<I", data, 4, at)
    data += values + struct.pack("<H", entries + len(tags)) + old + more + bytes(4)
    tracemalloc.start()
    np.testing.assert_array_equal(decoded(bytes(data)), colors())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(data) + (1 << 20)


@cache
def small(compression):
    return saved(picture(), "TIFF", compression=compression, strip_size=500)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@given(st.data())
@settings(max_examples=40)
def test_damaged_file_is_decoded_or_refused(compression, data):
    """Any change of bytes, also of the directory, gives a row or a refusal."""
    file = bytearray(small(compression))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, 250) | st.integers(0, len(file) - 1))
        file[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadInput, TooLarge):
        assert decoded(bytes(file)).shape == (23, 37, 3)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_estimate_is_that_of_all_bytes(compression):
    """A TIFF with more bytes, or in more pieces, costs more."""

    def of(data):
        with files.opened(data, "picture", itertools.count(1)) as image:
            return cost.of_image(image, image.size, 0, data, CONFIG)

    if compression:
        whole = saved(picture(), "TIFF", compression=compression, strip_size=1 << 20)
        lines = saved(picture(), "TIFF", compression=compression, strip_size=37 * 3)
    else:
        whole = tiff_of(37, 23, bytes(37 * 23 * 3))
        lines = tiff_of(37, 23, *[bytes(37 * 3)] * 23, tags={278: [1]})
    assert tiff.layout(lines, "").pieces == 23
    assert of(lines).seconds > of(whole).seconds
    deep = tiff_of(37, 23, bytes(2 * 37 * 23 * 3), tags={258: [16] * 3})
    assert of(deep).seconds > of(tiff_of(37, 23, bytes(37 * 23 * 3))).seconds
