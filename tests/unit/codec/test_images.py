"""Pictures to arrays: the same pixels as Keras's pipeline, or a clear refusal."""

import contextlib
import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from app.codec import images, jpeg
from app.codec.memory_budget import MemoryBudget
from app.engines.base import TensorSpec
from app.errors import BadInput, TooLarge, Unavailable
from app.settings.image_config import ImageConfig
from testing.pictures import colours, picture, saved

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")


def config(size=(8, 10), mode="RGB", scale="none", interpolation="nearest"):
    return ImageConfig(size, mode, scale, interpolation, ())


def decoded(data: bytes, wanted: ImageConfig, dtype: str = "f4") -> np.ndarray:
    """The one row that a picture becomes."""
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
    """The steps of keras.utils.load_img and img_to_array, by their description."""
    image = Image.open(io.BytesIO(data)).convert(wanted.mode)
    how = Image.Resampling[wanted.interpolation.upper()]
    image = image.resize(wanted.size[::-1], how)
    return np.asarray(image, np.float32).reshape(wanted.shape())


class Records:
    """A budget that is never exhausted and records the amounts."""

    def __init__(self) -> None:
        self.lent: list[int] = []

    @contextlib.contextmanager
    def reserve(self, pixels: int):
        self.lent.append(pixels)
        yield


@pytest.fixture
def budget(monkeypatch):
    records = Records()
    monkeypatch.setattr(images, "_budget", records)
    return records


# The same pixels.


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "lanczos"])
@pytest.mark.parametrize("to", ["RGB", "L"])
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *[(mode, "PNG") for mode in ("RGB", "L", "RGBA", "P", "LA", "1")],
        *[(mode, "JPEG") for mode in ("RGB", "L", "CMYK")],
        *[("RGB", kind) for kind in ("WEBP", "GIF", "BMP")],
        ("RGBA", "WEBP"),
    ],
)
def test_every_mode_becomes_what_load_img_makes_of_it(mode, kind, to, interpolation):
    """Mode, size and interpolation give the pixels that Keras's steps give."""
    data = saved(picture(mode), kind)
    wanted = config(mode=to, interpolation=interpolation)
    row = decoded(data, wanted)
    np.testing.assert_array_equal(row, by_load_img(data, wanted))
    assert len(np.unique(row)) > 1


def test_a_transparent_palette_loses_its_alpha():
    """A palette with a transparent colour keeps the colours, as in Keras."""
    data = saved(picture("P"), transparency=3)
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


@pytest.mark.parametrize("size", [(23, 37), (50, 80), (1, 1)])
def test_any_size_is_made(size):
    """The same size, a larger one and a single pixel come out as from Keras."""
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
def test_each_scale(scale, expected, dtype):
    """Red 0, green 51 and blue 255 become what keras.applications computes."""
    pixels = np.full((4, 5, 3), (0, 51, 255), np.uint8)
    row = decoded(saved(pixels), config((2, 3), scale=scale), dtype)
    tolerance = 0.1 if dtype == "f2" else 1e-5
    np.testing.assert_allclose(row, np.broadcast_to(expected, (2, 3, 3)), tolerance)


@pytest.mark.parametrize("dtype", ["u1", "i4"])
def test_whole_numbers_stay_pixels(dtype):
    """A model that takes integers gets 0 to 255 as they are."""
    data = saved(picture())
    wanted = config()
    row = decoded(data, wanted, dtype)
    np.testing.assert_array_equal(row, by_load_img(data, wanted))


# How a file is stored when its EXIF says so, for a picture that is upright.
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


@pytest.mark.parametrize("orientation", STORED)
def test_exif_turns(orientation):
    """A file that says how it was held gives the pixels of the upright picture."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(STORED[orientation](colours()))
    turned = saved(stored, exif=exif)
    wanted = config()
    expected = by_load_img(saved(colours()), wanted)
    np.testing.assert_array_equal(decoded(turned, wanted), expected)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("exif", [b"rubbish!!", b"II*\0\xff\xff\xff\xff"])
def test_exif_that_cannot_be_read_is_left_alone(exif, kind):
    """A picture with broken EXIF is taken as it is stored."""
    data = saved(picture(), kind, exif=b"Exif\0\0" + exif)
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


@pytest.mark.parametrize("to", ["RGB", "L"])
def test_16_bit_grey_keeps_its_upper_byte(to):
    """Of 16 bits of grey the upper 8 count, for grey and for colour models."""
    values = np.array([[0, 0x0180], [0x80FF, 0xFFFF]], np.uint16)
    row = decoded(saved(values), config((2, 2), to))
    np.testing.assert_array_equal(row[..., 0], [[0, 1], [128, 255]])


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_counts(kind):
    """A file with several frames is taken for its first."""
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 3
    row = decoded(data, config((1, 1)))
    np.testing.assert_array_equal(row, [[[255, 0, 0]]])


def test_of_a_picture_with_a_preview_the_picture_counts():
    """A JPEG with a second one behind it, as cameras write, is taken for its first."""
    data = saved(picture(), "MPO", save_all=True, append_images=[picture("L")])
    assert data[:2] == b"\xff\xd8"
    wanted = config()
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))


def test_pictures_become_rows_in_order():
    """Several pictures of several kinds become the rows of one array."""
    wanted = config(scale="-1..1")
    files = [saved(picture(), kind) for kind in KINDS]
    spec = TensorSpec("x", np.dtype("f4"), wanted.shape())
    rows = images.decode(files, wanted, spec, "picture")
    np.testing.assert_array_equal(rows, [decoded(file, wanted) for file in files])


# Large ones.


def test_a_large_jpeg_is_decoded_small(budget):
    """A JPEG of 6 megapixels takes a 64th of its pixels and looks the same."""
    data = saved(picture(width=3000, height=2000), "JPEG")
    wanted = config((32, 32), interpolation="box")
    row = decoded(data, wanted)
    assert budget.lent == [375 * 250]
    assert np.abs(row - by_load_img(data, wanted)).max() < 6


def test_no_jpeg_gets_smaller_than_four_times_what_is_wanted(budget):
    """The larger the model's pictures, the less is left out."""
    data = saved(picture(width=3000, height=2000), "JPEG")
    for side, shrunk in ((125, 4), (250, 2), (251, 1)):
        decoded(data, config((side, 10)))
        assert budget.lent[-1] == 3000 * 2000 / shrunk**2


def test_a_jpeg_of_4_megapixels_is_exact(budget):
    """Up to 4 megapixels the pixels are those of the full decoding."""
    data = saved(picture(width=2000, height=2000), "JPEG")
    wanted = config((32, 32))
    np.testing.assert_array_equal(decoded(data, wanted), by_load_img(data, wanted))
    assert budget.lent == [4_000_000]


def test_a_progressive_jpeg_counts_whole(budget):
    """A progressive JPEG is in memory as a whole, however small it comes out."""
    decoded(saved(picture(width=3000, height=2000), "JPEG", progressive=True), config())
    assert budget.lent == [6_000_000]


def chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header says a size, and whose data is a few bytes."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("width", "height"),
    [(8000, 5001), (10_000, 5_000), (50_000, 50_000), (2**31 - 1, 2**31 - 1)],
)
def test_more_than_40_megapixels_are_refused_by_the_header(budget, width, height):
    """A picture that says it is too large is refused before a pixel is decoded."""
    text = refusal(png_claiming(width, height), TooLarge)
    assert text == "picture[0]: the picture has more than 40 megapixels"
    assert budget.lent == []


@pytest.mark.parametrize(
    ("kind", "size", "wanted", "is_quick"),
    [
        ("JPEG", (300, 300), (224, 224), True),
        ("JPEG", (300, 301), (224, 224), False),
        ("JPEG", (30, 30), (300, 301), False),
        ("PNG", (30, 30), (224, 224), False),
    ],
)
def test_what_is_quick(kind, size, wanted, is_quick):
    """A JPEG of 300 x 300 is quick to decode for a model that takes no more."""
    data = saved(picture("RGB", *size), kind)
    assert images.is_quick(data, config(wanted)) == is_quick


def test_what_is_quick_never_waits(monkeypatch):
    """Where large pictures have all the budget, a quick one is decoded beside them."""
    monkeypatch.setattr(images, "_budget", MemoryBudget(0, 0, "large pictures"))
    decoded(saved(picture("RGB", 300, 300), "JPEG"), config())
    with pytest.raises(Unavailable, match="too many large pictures"):
        decoded(saved(picture("RGB", 300, 301), "JPEG"), config())


def test_a_bomb_of_comments_is_refused():
    """Comments that unfold to megabytes cost no more than a few."""
    comments = PngImagePlugin.PngInfo()
    for number in range(40):
        comments.add_text(f"k{number}", "x" * 1_000_000, zip=True)
    data = saved(picture(), pnginfo=comments)
    assert len(data) < 100_000
    tracemalloc.start()
    refusal(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_a_bomb_of_scans_is_refused(budget):
    """A JPEG that has the decoder go through it again and again is not decoded."""
    data = saved(picture(), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    text = refusal(data[:-2] + scan * jpeg.MAX_SCANS + data[-2:])
    assert text == "picture[0]: the JPEG has more than 64 scans, or 256 segments"
    assert budget.lent == []


@pytest.mark.parametrize("at", [33, -12], ids=["before the pixels", "behind them"])
def test_a_bomb_of_pieces_is_refused(at, monkeypatch):
    """A PNG of more pieces than encoders write is not read to its end."""
    whole = saved(picture())
    data = whole[:at] + chunk(b"abCd", b"") * 100 + whole[at:]
    decoded(data, config())
    monkeypatch.setattr(images, "_MAX_READS", 100)
    decoded(whole, config())
    assert refusal(data) == "picture[0]: the picture is damaged or cut off"


# Bad ones.


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"hello", id="text"),
        pytest.param(b"\x89PNG\r\n\x1a\n", id="a signature alone"),
        pytest.param(b"\xff\xd8\xff", id="the start of a JPEG"),
        pytest.param(png_claiming(0, 5), id="no columns"),
        pytest.param(png_claiming(5, 0), id="no lines"),
        pytest.param(saved(picture(), "TIFF"), id="another kind"),
        pytest.param(saved(picture(), "PPM"), id="one more kind"),
        pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg'/>", id="a drawing"),
    ],
)
def test_what_is_no_picture_is_refused(data):
    """What no reader knows is refused, with the kinds that are known."""
    assert refusal(data) == (
        "picture[0]: expected a picture of at least one pixel, as one of: "
        "JPEG, PNG, WEBP, GIF, BMP"
    )


def test_an_empty_file_is_refused():
    """No bytes are no picture, and the text says so."""
    assert refusal(b"") == "picture[0]: is empty, expected a picture"


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_that_is_cut_off_is_refused(kind):
    """Half a file is refused, never completed with grey."""
    data = saved(picture(width=200, height=100), kind)
    assert "damaged or cut off" in refusal(data[: len(data) // 2])


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=60)
def test_damage_is_never_more_than_a_refusal(kind, data):
    """Whatever bytes are changed, a row comes out or a refusal."""
    file = bytearray(saved(picture(), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadInput, TooLarge):
        assert decoded(bytes(file), config()).shape == (8, 10, 3)


def test_the_place_of_a_bad_picture_is_named():
    """An error says which of several pictures it is about, and where that stands."""
    spec = TensorSpec("x", np.dtype("f4"), (8, 10, 3))
    with pytest.raises(BadInput, match=r"^instances\[1\]\.image: is empty"):
        images.decode([saved(picture()), b""], config(), spec, "instances", ".image")
