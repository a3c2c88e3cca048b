"""Images to arrays: the same pixels as Keras's pipeline, or a refusal."""

import contextlib
import io
import struct
import tracemalloc
import zlib
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from app.codec.memory_budget import MemoryBudget
from app.codec.pictures import files, images, jpeg, pixels, tensorflow_resize
from app.engines.base import TensorSpec
from app.errors import BadInput, TooLarge, Unavailable
from app.settings.image_config import DATASET, INTERPOLATIONS, ImageConfig
from testing.pictures import colors, flat_webp, picture, png_chunk, saved
from tests.support.cases import case

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


def config(size=(8, 10), mode="RGB", scale="none", interpolation="nearest"):
    return ImageConfig(size, mode, scale, interpolation, ())


def decoded(data: bytes, wanted: ImageConfig, dtype: str = "f4") -> np.ndarray:
    """Return the row of one image."""
    spec = TensorSpec("x", np.dtype(dtype), wanted.shape())
    (row,) = images.decode([data], wanted, spec, "picture")
    assert row.dtype == dtype
    return row


def refusal(data: bytes, error: type = BadInput) -> str:
    with pytest.raises(error) as raised:
        decoded(data, config())
    text = str(raised.value)
    assert text.startswith("picture[0]: ")
    return text


def by_load_img(data: bytes, wanted: ImageConfig) -> np.ndarray:
    """Do the steps of keras.utils.load_img and img_to_array with Pillow."""
    image = Image.open(io.BytesIO(data)).convert(wanted.mode)
    how = Image.Resampling[wanted.interpolation.upper()]
    image = image.resize(wanted.size[::-1], how)
    return np.asarray(image, np.float32).reshape(wanted.shape())


@pytest.fixture
def decoded_sizes(monkeypatch):
    """Record the size at which each image is decoded."""
    sizes, to_size = [], pixels.to_size

    def noted(image, wanted):
        sizes.append(image.size)
        return to_size(image, wanted)

    monkeypatch.setattr(images.pixels, "to_size", noted)
    return sizes


# Pixels.


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *[(mode, "PNG") for mode in ("RGB", "L", "RGBA", "P", "LA", "1")],
        *[(mode, "JPEG") for mode in ("RGB", "L", "CMYK")],
        *[(mode, "TIFF") for mode in ("RGB", "L", "RGBA", "P", "LA", "1", "CMYK")],
        *[("RGB", kind) for kind in ("WEBP", "GIF", "BMP", "PPM")],
        *[("L", "PPM"), ("P", "BMP")],
        ("RGBA", "WEBP"),
    ],
)
def test_every_mode_is_converted_as_load_img_does(mode, kind):
    """Mode, size and interpolation give the pixels that Keras's steps give."""
    data = saved(picture(mode), kind)
    for to, interpolation in product(("RGB", "L"), ("nearest", "bilinear", "lanczos")):
        wanted = config(mode=to, interpolation=interpolation)
        with case(to, interpolation):
            row = decoded(data, wanted)
            np.testing.assert_array_equal(row, by_load_img(data, wanted))
            assert len(np.unique(row)) > 1


def test_transparent_palette_loses_its_alpha():
    """A palette with a transparent color keeps its colors, as in Keras."""
    data = saved(picture("P"), transparency=3)
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


@pytest.mark.parametrize("size", [(23, 37), (50, 80), (1, 1)])
def test_resize_to_any_size(size):
    """The same size, a larger one and a single pixel are as from Keras."""
    data = saved(picture())
    wanted = config(size, interpolation="bilinear")
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", [0, 51, 255]),
        ("0..1", [0, 0.2, 1]),
        ("-1..1", [-1, -0.6, 1]),
        # (value / 255 - mean) / deviation
        ("imagenet", [-0.485 / 0.229, (0.2 - 0.456) / 0.224, (1 - 0.406) / 0.225]),
        # Blue, green, red, less their means.
        ("caffe", [255 - 103.939, 51 - 116.779, 0 - 123.68]),
    ],
)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_each_scale_is_that_of_keras_applications(scale, expected, dtype):
    """Red 0, green 51 and blue 255 are scaled as by preprocess_input."""
    pixels = np.full((4, 5, 3), (0, 51, 255), np.uint8)
    row = decoded(saved(pixels), config((2, 3), scale=scale), dtype)
    tolerance = 0.1 if dtype == "f2" else 1e-5
    np.testing.assert_allclose(row, np.broadcast_to(expected, (2, 3, 3)), tolerance)


@pytest.mark.parametrize("dtype", ["u1", "i4"])
def test_integer_input_takes_pixels_unscaled(dtype):
    """A model that takes integers gets 0 to 255."""
    data = saved(picture())
    wanted = config()
    row = decoded(data, wanted, dtype)
    np.testing.assert_array_equal(row, by_load_img(data, wanted))


# How the pixels of an upright image are stored, by EXIF orientation.
STORED = {
    1: lambda upright: upright,
    2: np.fliplr,
    3: lambda upright: np.rot90(upright, 2),
    4: np.flipud,
    5: lambda upright: upright.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda upright: np.rot90(upright.transpose(1, 0, 2), 2),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("band_pixels", [1, 100, 1 << 18])
@pytest.mark.parametrize("orientation", STORED)
def test_exif_orientation_is_applied(orientation, band_pixels, monkeypatch):
    """A file with an orientation gives the pixels of the upright image."""
    monkeypatch.setattr(pixels, "_BAND", band_pixels)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(STORED[orientation](colors()))
    turned, upright = saved(stored, exif=exif), saved(colors())
    by_interpolation = [config(interpolation=each) for each in INTERPOLATIONS]
    for wanted in (*by_interpolation, config((50, 9), "L")):
        expected = by_load_img(upright, wanted)
        np.testing.assert_array_equal(decoded(turned, wanted), expected, str(wanted))


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1"])
def test_conversion_in_bands_gives_the_same_pixels(mode, monkeypatch):
    """An image that is converted in bands of rows is as from Keras."""
    monkeypatch.setattr(pixels, "_BAND", 100)
    data = saved(picture(mode))
    for size, how in product([(5, 4), (23, 64), (80, 37)], INTERPOLATIONS):
        wanted = config(size, interpolation=how)
        expected = by_load_img(data, wanted)
        np.testing.assert_array_equal(decoded(data, wanted), expected, str(wanted))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_photo_with_exif_is_rotated(kind):
    """The orientation that a camera writes into a photo is applied."""
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(picture(), kind, exif=exif)
    wanted = config()
    with Image.open(io.BytesIO(data)) as image:
        upright = saved(ImageOps.exif_transpose(image).convert("RGB"))
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(upright, wanted))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("exif", [b"rubbish!!", b"II*\0\xff\xff\xff\xff"])
def test_malformed_exif_is_ignored(exif, kind):
    """An image with malformed EXIF is decoded as it is stored."""
    data = saved(picture(), kind, exif=b"Exif\0\0" + exif)
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


@pytest.mark.parametrize("to", ["RGB", "L"])
def test_16_bit_gray_becomes_8_bit(to):
    """The upper 8 bits are kept, for gray and for color models."""
    values = np.array([[0, 0x0180], [0x80FF, 0xFFFF]], np.uint16)
    row = decoded(saved(values), config((2, 2), to))
    np.testing.assert_array_equal(row[..., 0], [[0, 1], [128, 255]])


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("side", [48, 112])
@pytest.mark.parametrize(("width", "height"), [(75, 115), (150, 100)])
def test_tall_and_wide_images_are_resized_as_load_img_does(
    width, height, side, interpolation
):
    """Whichever of rows and columns Pillow resizes first, the pixels are its own."""
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = colors(width, height)
    wanted = config((side, side), interpolation=interpolation)
    expected = by_load_img(saved(upright), wanted)
    turned = saved(np.ascontiguousarray(np.rot90(upright)), exif=exif)
    np.testing.assert_array_equal(decoded(turned, wanted), expected)
    transparent = picture("RGBA", width, height)
    np.testing.assert_array_equal(
        decoded(saved(transparent), wanted), by_load_img(saved(transparent), wanted)
    )


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_16_bit_gray_is_rotated(interpolation):
    """16-bit gray has its orientation applied as other modes have."""
    exif = Image.Exif()
    exif[0x0112] = 6
    values = np.arange(12, dtype=np.uint16).reshape(3, 4) << 8
    row = decoded(saved(values, exif=exif), config((4, 3), "L", "none", interpolation))
    np.testing.assert_array_equal(row[..., 0], np.rot90(values >> 8, -1))


@pytest.mark.parametrize("size", [(9, 7), (60, 90)])
@pytest.mark.parametrize("to", ["RGB", "L"])
def test_resizing_in_bands_gives_the_same_pixels(to, size, monkeypatch):
    """Pixels of image_dataset_from_directory do not depend on the bands."""
    wanted = ImageConfig(size, to, "none", "bilinear", (), DATASET)
    whole = decoded(saved(picture()), wanted)
    monkeypatch.setattr(tensorflow_resize, "_BAND_FROM", 200)
    monkeypatch.setattr(tensorflow_resize, "_BAND_TO", 100)
    np.testing.assert_array_equal(decoded(saved(picture()), wanted), whole)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_first_frame_of_an_animation(kind):
    """Of a file with several frames the first is decoded."""
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue", "lime")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 3
    row = decoded(data, config((1, 1)))
    np.testing.assert_array_equal(row, [[[255, 0, 0]]])


def test_first_image_of_a_multi_picture_jpeg():
    """Of a JPEG with a second one behind it, as cameras write, the first counts."""
    data = saved(picture(), "MPO", save_all=True, append_images=[picture("L")])
    assert data[:2] == b"\xff\xd8"
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


def test_several_images_are_rows_in_order():
    """Images of several formats become the rows of one array."""
    wanted = config(scale="-1..1")
    pictures = [saved(picture(), kind) for kind in KINDS]
    spec = TensorSpec("x", np.dtype("f4"), wanted.shape())
    rows = images.decode(pictures, wanted, spec, "picture")
    np.testing.assert_array_equal(rows, [decoded(file, wanted) for file in pictures])


# Large images.


@pytest.fixture
def low_limits(monkeypatch):
    """Decode JPEGs like one of 300 x 200 pixels at reduced size."""
    monkeypatch.setattr(files, "_SHRINK_ABOVE", 50_000)
    # A small one never is.
    monkeypatch.setattr(images, "_SMALL_PIXELS", 50_000)


@pytest.mark.usefixtures("low_limits")
def test_large_jpeg_is_decoded_at_reduced_size(decoded_sizes):
    """A large JPEG takes a 64th of its pixels, and looks the same."""
    data = saved(picture(width=300, height=200), "JPEG")
    wanted = config((4, 4), interpolation="box")
    row = decoded(data, wanted)
    assert decoded_sizes == [(38, 25)]
    assert np.abs(row - by_load_img(data, wanted)).mean() < 8


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(("side", "divisor"), [(12, 4), (25, 2), (26, 1)])
def test_reduced_size_is_four_times_the_models(decoded_sizes, side, divisor):
    """A JPEG is never decoded at less than four times the model's size."""
    decoded(saved(picture(width=300, height=200), "JPEG"), config((side, 10)))
    assert decoded_sizes == [(300 / divisor, 200 / divisor)]


def test_jpeg_of_4_megapixels_is_decoded_exactly(decoded_sizes):
    """Up to 4 megapixels the pixels are those of the full decoding."""
    data = saved(Image.radial_gradient("L").resize((2000, 2000)), "JPEG")
    wanted = config((32, 32), "L")
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))
    assert decoded_sizes == [(2000, 2000)]


def chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def png_claiming(width: int, height: int) -> bytes:
    """Return a PNG whose header claims a size, with a few bytes of data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("width", "height"),
    [(8000, 5001), (10_000, 5_000), (50_000, 50_000), (2**31 - 1, 2**31 - 1)],
)
def test_more_than_40_megapixels_are_refused(decoded_sizes, width, height):
    """The header suffices: no pixel is decoded."""
    text = refusal(png_claiming(width, height), TooLarge)
    assert text == "picture[0]: the picture has more than 40 megapixels"
    assert decoded_sizes == []


@pytest.mark.parametrize("size", [(65_536, 1), (1, 65_536)])
def test_side_of_more_than_65535_pixels_is_refused(decoded_sizes, size):
    """The refusal says both sides, and what each may have."""
    text = refusal(png_claiming(*size), TooLarge)
    assert text == (
        f"picture[0]: the picture is {size[0]} x {size[1]} pixels, each side may have "
        "65535"
    )
    assert decoded_sizes == []


@pytest.mark.parametrize(
    ("kind", "size", "wanted", "expected"),
    [
        ("JPEG", (300, 300), (224, 224), True),
        ("JPEG", (300, 301), (224, 224), False),
        ("JPEG", (30, 30), (300, 301), False),
        ("JPEG", (2, 40_000), (224, 224), False),
        ("PNG", (30, 30), (224, 224), False),
    ],
)
def test_small_jpeg_is_cheap_to_decode(kind, size, wanted, expected):
    """A JPEG of 300 x 300 is cheap for a model that takes no more."""
    data = saved(picture("RGB", *size), kind)
    assert (images.small_jpeg(data, config(wanted)) is not None) == expected


@pytest.mark.parametrize(
    ("data", "budget"),
    [
        (saved(Image.new("RGB", (1000, 1000))), None),
        (saved(Image.new("RGB", (2000, 1500))), "_short"),
        (flat_webp(3000, 2000), "_long"),
    ],
    ids=["small", "short", "long"],
)
def test_image_waits_for_the_memory_budget_of_its_cost(data, budget, monkeypatch):
    """Small images never wait, and others only for those of their kind."""
    for each in ("_short", "_long"):
        with monkeypatch.context() as patch:
            patch.setattr(images, each, MemoryBudget(0, 0, "large pictures"))
            if each != budget:
                decoded(data, config())
                continue
            with pytest.raises(Unavailable, match="too many large pictures"):
                decoded(data, config())


def test_decompression_bomb_of_comments_is_refused():
    """Comments that decompress to megabytes take little memory."""
    data, text = saved(picture()), zlib.compress(b"x" * 1_000_000)
    comments = [png_chunk(b"zTXt", b"k%d\0\0%s" % (n, text)) for n in range(40)]
    data = data[:33] + b"".join(comments) + data[33:]
    assert len(data) < 100_000
    tracemalloc.start()
    refusal(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_jpeg_of_many_scans_is_refused(decoded_sizes):
    """A JPEG for which the decoder would repeat its work is not decoded."""
    data = saved(picture(), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    text = refusal(data[:-2] + scan * jpeg.MAX_SCANS + data[-2:])
    assert text == (
        "picture[0]: the JPEG has more than 64 scans or 256 segments, is arithmetic "
        "coded, or mostly padding"
    )
    assert decoded_sizes == []


@pytest.mark.parametrize("at", [33, -12], ids=["before the pixels", "behind them"])
def test_png_of_many_chunks_is_refused(at, monkeypatch):
    """A PNG of more chunks than encoders write is not read to its end."""
    whole = saved(picture())
    data = whole[:at] + chunk(b"abCd", b"") * 100 + whole[at:]
    decoded(data, config())
    monkeypatch.setattr(files, "_MAX_READS", 100)
    decoded(whole, config())
    text = refusal(data, TooLarge)
    assert text == "picture[0]: the request's pictures are in too many pieces"


# Malformed images.


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        png_claiming(0, 5),
        png_claiming(5, 0),
        saved(picture(), "TIFF", big_tiff=True),
        b"MM*\0" + saved(picture(), "TIFF")[4:],
        *[saved(picture(), kind) for kind in ("ICO", "TGA", "JPEG2000", "PCX", "QOI")],
        # Values that Pillow reads one by one.
        *[b"P3 1 1 255 1 2 3", b"P6 1 1 254\nabc", b"Pf 1 1 1.0\n0000"],
        b"PyP 1 1 255\na",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    ],
    ids=[
        *("text", "PNG signature", "JPEG start", "no columns", "no lines", "BigTIFF"),
        *("odd TIFF", "ICO", "TGA", "JPEG2000", "PCX", "QOI", "PPM of text"),
        *("PPM of 254", "PFM", "PyP", "SVG"),
    ],
)
def test_unknown_format_is_refused(data):
    """The refusal names the supported formats; an empty file has its own text."""
    assert refusal(data) == (
        "picture[0]: expected a picture of at least one pixel, as one of: "
        "JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM"
    )
    assert refusal(b"") == "picture[0]: is empty, expected a picture"


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_image_is_refused(kind):
    """Half a file is refused, never completed with gray."""
    data = saved(picture(width=200, height=100), kind)
    assert "damaged or cut off" in refusal(data[: len(data) // 2])


@cache
def small(kind):
    return saved(picture(), kind)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=30)
def test_damaged_image_is_decoded_or_refused(kind, data):
    """Any change of bytes gives a row or a refusal."""
    file = bytearray(small(kind))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadInput, TooLarge):
        assert decoded(bytes(file), config()).shape == (8, 10, 3)


def test_refusal_names_the_place_of_the_image():
    """An error says which of several images it is about."""
    spec = TensorSpec("x", np.dtype("f4"), (8, 10, 3))
    with pytest.raises(BadInput, match=r"^instances\[1\]\.image: is empty"):
        images.decode([saved(picture()), b""], config(), spec, "instances", ".image")
