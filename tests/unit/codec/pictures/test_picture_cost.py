"""What the header of an image says of the cost of decoding it, and its limits."""

import itertools
import struct
import weakref
import zlib

import numpy as np
import pytest
from PIL import Image

from app.codec.pictures import cost, files, images
from app.codec.pictures.cost import Cost
from app.engines.base import TensorSpec
from app.errors import Abandoned, BadInput, Late, TooLarge
from app.settings.image_config import DATASET, INTERPOLATIONS, ImageConfig
from testing.pictures import flat_webp, many_scans, of_size, picture, png_chunk, saved

CONFIG = ImageConfig((224, 224), "RGB", "none", "bilinear", ())
SPEC = TensorSpec("x", np.dtype("u1"), CONFIG.shape())


def cost_of(data: bytes, config: ImageConfig = CONFIG) -> Cost:
    scans = files.count_scans(data, "picture[0]")
    with files.opened(data, "picture[0]", itertools.count(1)) as image:
        stored = image.size
        files.shrink(image, config)
        return cost.of_image(image, stored, scans, data, config)


def megapixel(mode: str = "RGB") -> Image.Image:
    return picture(mode).resize((1000, 1000))


def decode(*pictures: bytes, config: ImageConfig = CONFIG) -> np.ndarray:
    return images.decode(pictures, config, SPEC, "picture")


@pytest.fixture
def decoded(monkeypatch):
    """Record the sizes of the images that are decoded."""
    sizes, to_size = [], images.pixels.to_size

    def noted(image, config):
        sizes.append(image.size)
        return to_size(image, config)

    monkeypatch.setattr(images.pixels, "to_size", noted)
    return sizes


# One image.


@pytest.mark.parametrize(
    ("make", "name", "ns", "pixel_bytes"),
    [
        (lambda: saved(megapixel(), "JPEG"), "JPEG", 6, 4),
        (lambda: saved(megapixel("CMYK"), "JPEG"), "JPEG", 10, 8),
        (
            lambda: saved(megapixel(), "JPEG", progressive=True),
            "JPEG of 10 scans",
            15,
            10,
        ),
        (lambda: many_scans(1000, 1000), "JPEG of 64 scans", 55, 10),
        (lambda: saved(megapixel()), "PNG", 9, 4),
        (lambda: saved(megapixel("L")), "PNG", 13, 5),
        (
            lambda: saved(np.zeros((1000, 1000), np.uint16)),
            "PNG, interlaced or of 16 bits,",
            31,
            6,
        ),
        (lambda: saved(Image.new("RGB", (1000, 1000)), "GIF"), "GIF", 9, 5),
        (lambda: saved(megapixel(), "BMP"), "BMP", 7, 4),
        (lambda: saved(megapixel(), "PPM"), "PPM", 7, 4),
        (lambda: flat_webp(1000, 1000), "lossless WebP", 19, 16),
        (lambda: saved(Image.new("RGB", (1000, 1000)), "WEBP"), "WebP", 19, 16),
    ],
)
def test_cost_of_each_format(make, name, ns, pixel_bytes):
    """Seconds and memory of a megapixel follow from its format and mode."""
    data = make()
    found = cost_of(data)
    assert found.format == name
    assert found.megapixels == 1
    bytes_s = found.seconds - ns * 1e-3
    # The file's bytes, resizing, and whole blocks of a JPEG come on top.
    assert 0 <= bytes_s <= 0.006 + 60e-9 * len(data) + 0.05e-3 * ns
    more = found.memory - pixel_bytes * 1_000_000 - len(data)
    assert 0 <= more <= 6 << 20


def test_reduced_size_makes_a_jpeg_cheaper():
    """A JPEG of 12 megapixels is decoded at half its size, and costs accordingly."""
    data = of_size(saved(picture(), "JPEG"), 4000, 3000)
    whole = cost_of(data, ImageConfig((1024, 1024), "RGB", "none", "nearest", ()))
    reduced = cost_of(data)
    assert whole.megapixels == reduced.megapixels == 12
    assert reduced.memory < whole.memory / 3
    assert reduced.seconds < whole.seconds


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_jpeg_for_the_dataset_costs_its_full_size(interpolation):
    """A JPEG that is not shrunk takes 4 bytes for each of its pixels, and bands."""
    config = ImageConfig((224, 224), "RGB", "none", interpolation, (), DATASET)
    exif = Image.Exif()
    exif[0x0112] = 6
    whole, rotated = (
        cost_of(of_size(saved(picture(), "JPEG", exif=each), 4000, 3000), config)
        for each in (Image.Exif(), exif)
    )
    assert 48_000_000 < whole.memory < 58_000_000
    assert 96_000_000 < rotated.memory < 110_000_000
    assert whole.seconds > 12e-3 * (1 + 2.5 + 2)


def test_enlarging_for_the_dataset_costs_what_it_makes():
    """The pixels that are made count, in time and as float32."""
    config = ImageConfig((4096, 4096), "RGB", "none", "bilinear", (), DATASET)
    found = cost_of(saved(picture()), config)
    assert found.memory > 4096 * 4096 * 3 * 4
    assert found.seconds > 4096 * 4096 * 20e-9


def test_rotation_and_conversion_cost_time():
    """EXIF orientation and another mode take time, and a copy of the image."""
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.new("RGB", (1000, 1000))
    plain, turned = cost_of(saved(image)), cost_of(saved(image, exif=exif))
    assert turned.seconds - plain.seconds == pytest.approx(0.0065, rel=0.05)
    alpha = cost_of(saved(Image.new("RGBA", (1000, 1000))))
    assert alpha.seconds - plain.seconds == pytest.approx(0.005, rel=0.05)
    assert alpha.memory == pytest.approx(turned.memory, rel=0.001)
    assert 4_000_000 < alpha.memory - plain.memory < 8_000_000
    nearest = ImageConfig((224, 224), "RGB", "none", "nearest", ())
    alpha = cost_of(saved(Image.new("RGBA", (1000, 1000))), nearest)
    assert alpha.memory == pytest.approx(plain.memory, rel=0.001)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_rows_of_the_models_width_count(interpolation):
    """A column of pixels is resized to as many rows, which cost memory."""
    config = ImageConfig((8, 1024), "RGB", "none", interpolation, ())
    tall = cost_of(saved(Image.new("L", (1, 60_000))), config)
    assert tall.memory > 4 * 1024 * 60_000


def test_narrow_jpeg_costs_whole_blocks():
    """A JPEG of one column is decoded in blocks of 32 pixels."""
    config = ImageConfig((8, 1), "RGB", "none", "nearest", ())
    narrow = cost_of(many_scans(1, 60_000), config)
    wide = cost_of(many_scans(32, 60_000), config)
    assert narrow.seconds > wide.seconds / 2
    assert narrow.memory > wide.memory / 2


def test_interlaced_png_costs_more():
    """A PNG in seven passes is decoded pixel by pixel."""
    data = bytearray(saved(picture()))
    data[28] = 1
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    assert cost_of(bytes(data)).format == "PNG, interlaced or of 16 bits,"


def test_file_of_run_lengths_costs_more():
    """Pillow decodes a BMP of run lengths in Python."""
    bmp = bytearray(saved(Image.new("L", (100, 100)), "BMP"))
    struct.pack_into("<I", bmp, 30, 1)
    assert cost_of(bytes(bmp)).format == "BMP of run lengths"
    assert cost_of(bytes(bmp)).seconds > 3 * cost_of(saved(picture())).seconds


# One request.


def test_webp_of_few_bytes_is_refused_by_its_memory(decoded):
    """The refusal says what the WebP takes and what is allowed."""
    with pytest.raises(TooLarge) as raised:
        decode(flat_webp(16_000, 2_490))
    assert str(raised.value) == (
        "picture[0]: a lossless WebP of 39.8 megapixels takes 652 MB of memory to "
        "decode, at most 204 MB"
    )
    assert decoded == []


def test_form_that_takes_too_long_is_refused(decoded):
    """The refusal names the picture that is too much, before any is decoded."""
    with pytest.raises(TooLarge) as raised:
        decode(*[flat_webp(3_200, 2_000)] * 64)
    assert str(raised.value) == (
        "picture[11]: with this lossless WebP of 6.4 megapixels the request takes "
        "1.50 s to decode, at most 1.40 s: 71.9 megapixels of such pictures"
    )
    assert decoded == []


def test_64_jpegs_of_64_scans_are_refused(decoded):
    """Scans count: each goes through the whole image."""
    with pytest.raises(TooLarge, match=r"JPEG of 64 scans of 1.0 megapixels"):
        decode(*[many_scans(1000, 1000)] * 64)
    assert decoded == []


@pytest.mark.parametrize(
    ("count", "make"),
    [
        (1, lambda: of_size(saved(picture(), "JPEG"), 8000, 5000)),
        (1, lambda: of_size(saved(picture("1")), 7600, 5000)),
        (1, lambda: flat_webp(4032, 3024)),
        (30, lambda: saved(Image.new("RGB", (4032, 3024)), "JPEG")),
        (64, lambda: saved(picture(width=640, height=480), "JPEG")),
        (50, lambda: of_size(saved(picture()), 1920, 1080)),
    ],
    ids=["40 MP JPEG", "38 MP PNG", "12 MP WebP", "phone", "small", "screenshots"],
)
def test_usual_pictures_are_affordable(count, make):
    """Photos and screenshots stay within the limits of a request."""
    checks = itertools.count(1)

    def check():
        # Once for the cost of each picture, and then before the first is decoded.
        if next(checks) > count:
            raise Abandoned("all are affordable")

    with pytest.raises(Abandoned):
        images.decode([make()] * count, CONFIG, SPEC, "picture", check=check)


@pytest.mark.parametrize("name", [b"iCCP", b"zTXt", b"iTXt"])
def test_profiles_and_texts_of_a_png_are_refused_unread(name, monkeypatch):
    """A PNG with a thousand color profiles or texts is not opened."""
    data = saved(picture())
    profile = png_chunk(name, b"x\0\0")
    monkeypatch.setattr(files.Image, "open", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(TooLarge, match="too many color profiles"):
        decode(data[:33] + profile * 1000 + data[33:])


@pytest.mark.parametrize("error", [Late, Abandoned])
def test_disconnect_ends_decoding_between_pictures(error, decoded):
    """After a disconnect or the deadline no further image is decoded."""

    def check():
        if len(decoded) == 2:
            raise error("nobody waits")

    with pytest.raises(error):
        images.decode([saved(picture())] * 9, CONFIG, SPEC, "picture", check=check)
    assert len(decoded) == 2


def test_error_frees_an_image_before_its_memory_is_free(monkeypatch):
    """The error of a damaged image does not keep its pixels."""
    refs, alive, to_size = [], [], images.pixels.to_size

    def noted(image, config):
        refs.append(weakref.ref(image))
        return to_size(image, config)

    monkeypatch.setattr(images.pixels, "to_size", noted)
    monkeypatch.setattr(
        "app.codec.memory_budget.give_back",
        lambda: alive.extend(ref() for ref in refs),
    )
    data = saved(Image.new("RGB", (2000, 2000)), compress_level=0)
    with pytest.raises(BadInput) as raised:
        decode(data[: len(data) // 2])
    assert "damaged or cut off" in str(raised.value)
    assert alive == [None]
