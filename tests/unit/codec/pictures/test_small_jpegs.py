"""Small JPEGs, decoded without Pillow's file plugin: the same pixels and errors."""

import struct
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.codec.pictures import files, images
from app.engines.base import TensorSpec
from app.errors import BadInput, BasketError
from app.settings.image_config import DATASET, ImageConfig
from testing.pictures import picture, saved

PLAIN = saved(picture(), "JPEG")
SCAN = PLAIN.index(b"\xff\xda")
SIZE = (23, 37)
FRAME = PLAIN.index(b"\xff\xc0")


def of_size(height, width):
    """Return the plain JPEG with another size in its header."""
    sizes = struct.pack(">HH", height, width)
    return PLAIN[: FRAME + 5] + sizes + PLAIN[FRAME + 9 :]


def with_segment(content, marker):
    """Return the plain JPEG with another segment in front."""
    head = struct.pack(">BBH", 0xFF, marker, 2 + len(content))
    return PLAIN[:2] + head + content + PLAIN[2:]


def config(size=SIZE, mode="RGB", scale="0..1", resize=""):
    how = {"resize": resize} if resize else {}
    return ImageConfig(size, mode, scale, "bilinear", **how)


def outcome(data, wanted):
    """Return the row of an image, or its error."""
    spec = TensorSpec("x", np.dtype("f4"), wanted.shape())
    try:
        return images.decode([data], wanted, spec, "picture").tobytes()
    except BasketError as error:
        return type(error), str(error)


@contextmanager
def by_plugin():
    """Have Pillow open all files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "_DECODED_AT_ONCE_BYTES", 0)
        yield


def assert_same(data, wanted):
    found = outcome(data, wanted)
    with by_plugin():
        assert found == outcome(data, wanted)


DIRECT = {
    "RGB": PLAIN,
    "gray": saved(picture("L"), "JPEG"),
    "no subsampling": saved(picture(), "JPEG", subsampling=0),
    "subsampled": saved(picture(), "JPEG", subsampling=2),
    "not converted": saved(picture(), "JPEG", keep_rgb=True),
    "own tables": saved(picture(), "JPEG", optimize=True),
    "restarts": saved(picture(), "JPEG", restart_marker_blocks=2),
    "a comment": saved(picture(), "JPEG", comment=b"shop"),
    "a profile": saved(picture(), "JPEG", icc_profile=b"x" * 99),
    "a thumbnail": with_segment(PLAIN[:SCAN], 0xED),
    "Adobe": with_segment(b"Adobe\0d\0\0\0\0\0", 0xEE),
    "bytes behind it": PLAIN + b"shop",
    "another behind it": PLAIN + saved(picture("L"), "PNG"),
    "a flipped bit": PLAIN[:-40] + bytes([PLAIN[-40] ^ 1]) + PLAIN[-39:],
}
CONFIGS = {
    "as it is": config(),
    "unscaled": config(scale="none"),
    "gray": config(mode="L"),
    "resized": config((8, 10)),
    "as a dataset": config(resize=DATASET),
}


@pytest.mark.parametrize("wanted", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("data", DIRECT.values(), ids=DIRECT)
def test_small_jpeg_has_the_same_pixels(data, wanted, monkeypatch):
    """The pixels are those of Pillow's plugin, which is not asked."""
    with by_plugin():
        expected = outcome(data, wanted)
    assert isinstance(expected, bytes)
    monkeypatch.setattr(files, "opened", None)
    assert outcome(data, wanted) == expected


def rotated():
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(picture(), "JPEG", exif=exif)


OTHER = {
    "CMYK": saved(picture("CMYK"), "JPEG"),
    "progressive": saved(picture(), "JPEG", progressive=True),
    "rotated": rotated(),
    "rotated by XMP": with_segment(
        b'http://ns.adobe.com/xap/1.0/\0tiff:Orientation="3"', 0xE1
    ),
    "no end": PLAIN[:-2],
    "truncated": PLAIN[: SCAN + 40],
    "truncated header": PLAIN[: SCAN + 4],
    "half of JFIF": with_segment(b"JFIF\0\1", 0xE0),
    "half of Adobe": with_segment(b"Adobe\0", 0xEE),
    "higher": of_size(300, 37),
    "wider": of_size(23, 300),
    "lower": of_size(9, 37),
    "no height": of_size(0, 37),
    "two frames": PLAIN[:SCAN] + PLAIN[FRAME : FRAME + 19] + PLAIN[SCAN:],
    "no tables": PLAIN.replace(b"\xff\xc4", b"\xff\xfe"),
}


@pytest.mark.parametrize("data", OTHER.values(), ids=OTHER)
def test_other_jpeg_has_the_same_outcome(data):
    """What is not surely an upright image is left to Pillow's plugin, and its error."""
    assert_same(data, config())


@settings(max_examples=300)
@given(
    st.sampled_from([*DIRECT.values()]),
    st.lists(st.tuples(st.integers(2, 900), st.integers(0, 255)), max_size=3),
    st.integers(0, 60),
    st.sampled_from([*CONFIGS.values()]),
)
def test_damaged_jpeg_has_the_same_outcome(data, edits, cut, wanted):
    """Pixels or error are the same, whatever is changed or cut off."""
    damaged = bytearray(data)
    for at, value in edits:
        damaged[at % len(damaged)] = value
    assert_same(bytes(damaged[: len(damaged) - cut]), wanted)


def test_error_of_a_truncated_small_jpeg():
    """The error is that of all damaged pictures."""
    expected = (BadInput, "picture[0]: the picture is damaged or cut off")
    assert outcome(PLAIN[: SCAN + 40], config()) == expected


def test_one_image_follows_another_of_the_same_size():
    """The rows of a request keep their own pixels."""
    pictures = [saved(picture(seed=seed), "JPEG") for seed in range(3)]
    spec = TensorSpec("x", np.dtype("f4"), config().shape())
    rows = images.decode(pictures, config(), spec, "picture")
    assert [row.tobytes() for row in rows] == [outcome(p, config()) for p in pictures]
