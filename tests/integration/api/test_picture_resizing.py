"""The pixels of [image] beside those of keras.utils.image_dataset_from_directory."""

import io

import numpy as np
import pytest
from PIL import Image

from app.codec.pictures import images
from app.engines.base import TensorSpec
from app.settings.image_config import DATASET, LOAD_IMG, ImageConfig
from testing.pictures import colors, picture, saved
from testing.server import serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
COLOR_MODES = {"RGB": "rgb", "L": "grayscale"}


@pytest.fixture
def by_keras(keras, tmp_path):
    """Return one picture as image_dataset_from_directory loads it."""

    def load(data, wanted):
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / "pictures" / "picture.png").write_bytes(data)
        (row,) = keras.utils.image_dataset_from_directory(
            tmp_path / "pictures",
            labels=None,
            batch_size=None,
            shuffle=False,
            image_size=wanted.size,
            color_mode=COLOR_MODES[wanted.mode],
            interpolation=wanted.interpolation,
            crop_to_aspect_ratio=wanted.crop_to_aspect_ratio,
            verbose=False,
        )
        return row.numpy()

    return load


def _wanted(size, mode="RGB", interpolation="bilinear", scale="none"):
    return ImageConfig(size, mode, scale, interpolation, (), DATASET)


def _cropped(size, interpolation, resize):
    return ImageConfig(size, "RGB", "none", interpolation, (), resize, True)


def _decoded(data, wanted, dtype="f4"):
    spec = TensorSpec("x", np.dtype(dtype), wanted.shape())
    (row,) = images.decode([data], wanted, spec, "picture")
    return row


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
@pytest.mark.parametrize(
    "size",
    [(96, 96), (224, 224), (7, 500), (600, 31), (199, 301), (1, 1), (1000, 1200)],
    ids=str,
)
@pytest.mark.parametrize("mode", COLOR_MODES)
def test_pixels_are_those_of_the_dataset(by_keras, mode, size, interpolation):
    """Pictures become smaller, larger or neither, with the same float32 values."""
    data = saved(picture(mode, 301, 199))
    wanted = _wanted(size, mode, interpolation)
    row, expected = _decoded(data, wanted), by_keras(data, wanted)
    assert row.shape == expected.shape
    np.testing.assert_allclose(row, expected, atol=1e-3)
    assert np.ptp(row) > 100 or size == (1, 1)


@pytest.mark.parametrize("width", range(2, 24))
def test_nearest_takes_the_same_pixels_for_any_width(by_keras, width):
    """Where a pixel lies between two, TensorFlow's float32 arithmetic decides."""
    data = saved(colors(10, 3))
    wanted = _wanted((3, width), interpolation="nearest")
    np.testing.assert_array_equal(_decoded(data, wanted), by_keras(data, wanted))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 60_000), (3, 2)])
def test_narrow_pictures_are_resized_as_in_the_dataset(by_keras, width, height):
    """A single pixel and a long column have the values of the dataset."""
    data, wanted = saved(colors(width, height)), _wanted((40, 50))
    np.testing.assert_allclose(
        _decoded(data, wanted), by_keras(data, wanted), atol=1e-3
    )


SIDES = [(96, 96), (50, 99), (99, 50), (400, 300), (1, 60)]


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", SIDES, ids=str)
@pytest.mark.parametrize(("width", "height"), [(301, 199), (150, 230), (70, 3)])
def test_cropped_pixels_are_those_of_the_dataset(
    by_keras, width, height, size, interpolation
):
    """The middle of a picture is resized, in the proportions of the size."""
    data, wanted = saved(colors(width, height)), _cropped(size, interpolation, DATASET)
    row = _decoded(data, wanted)
    np.testing.assert_allclose(row, by_keras(data, wanted), atol=1e-3)


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "lanczos"])
@pytest.mark.parametrize("size", SIDES, ids=str)
@pytest.mark.parametrize(("width", "height"), [(301, 199), (150, 230), (400, 300)])
def test_cropped_pixels_are_those_of_load_img(
    keras, width, height, size, interpolation
):
    """load_img calls it keep_aspect_ratio."""
    data = saved(colors(width, height))
    image = keras.utils.load_img(
        io.BytesIO(data),
        target_size=size,
        interpolation=interpolation,
        keep_aspect_ratio=True,
    )
    row = _decoded(data, _cropped(size, interpolation, LOAD_IMG))
    np.testing.assert_array_equal(row, keras.utils.img_to_array(image))


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1"])
def test_other_modes_are_converted_as_in_the_dataset(by_keras, mode):
    """Alpha is dropped, and a palette becomes its colors."""
    data, wanted = saved(picture(mode, 301, 199)), _wanted((96, 96))
    np.testing.assert_allclose(
        _decoded(data, wanted), by_keras(data, wanted), atol=1e-3
    )


def test_color_becomes_gray_within_one_of_the_dataset(by_keras):
    """TensorFlow and Pillow round the sum of red, green and blue differently."""
    data, wanted = saved(picture("RGB", 301, 199)), _wanted((96, 96), "L")
    row, expected = _decoded(data, wanted), by_keras(data, wanted)
    np.testing.assert_allclose(row, expected, rtol=0, atol=1.001)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_differs_from_the_dataset_by_its_decoding_alone(tf, by_keras, mode):
    """TensorFlow decodes JPEGs there with a fast transform: up to 3 of 255."""
    data = saved(picture(mode, 301, 199), "JPEG", quality=90)
    exact = tf.io.decode_jpeg(data, len(mode), dct_method="INTEGER_ACCURATE").numpy()
    wanted = _wanted((96, 96), mode)
    row = _decoded(data, wanted)
    same = saved(exact.squeeze())
    np.testing.assert_allclose(row, by_keras(same, wanted), atol=1e-3)
    difference = np.abs(row - by_keras(data, wanted))
    assert difference.max() <= 3.001
    assert difference.mean() <= 1


def test_large_jpeg_is_decoded_at_its_full_size(tf, by_keras):
    """A JPEG above 4 megapixels is not shrunk first, which would average pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (1500, 3000, 3), np.uint8)
    data, wanted = saved(noise, "JPEG"), _wanted((96, 96))
    exact = tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE").numpy()
    np.testing.assert_allclose(
        _decoded(data, wanted), by_keras(saved(exact), wanted), atol=1e-3
    )


def test_rotated_picture_is_upright_before_it_is_resized(by_keras):
    """The orientation is applied first; Keras ignores it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved(np.ascontiguousarray(np.rot90(colors(150, 230))), exif=exif)
    wanted = _wanted((96, 64))
    expected = by_keras(saved(colors(150, 230)), wanted)
    np.testing.assert_allclose(_decoded(turned, wanted), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "scale"), [("u1", "none"), ("f4", "0..1"), ("f4", "-1..1")]
)
def test_model_gets_the_pixels_that_predict_gives_it(keras, by_keras, dtype, scale):
    """Pixels are not rounded: integer inputs drop fractions, scales keep them."""
    image = keras.Input((96, 96, 3), dtype="uint8" if dtype == "u1" else "float32")
    factors = {"none": (1, 0), "0..1": (1 / 255, 0), "-1..1": (1 / 127.5, -1)}
    model = keras.Model(image, keras.layers.Rescaling(*factors[scale])(image))
    data, wanted = saved(picture("RGB", 301, 199)), _wanted((96, 96), scale=scale)
    expected = model.predict(by_keras(data, wanted)[np.newaxis], verbose=0)[0]
    row = _decoded(data, wanted, dtype)
    # A value just below an integer may lose a whole one.
    assert np.abs(row.astype("f4") - expected).mean() < 1e-3


def test_served_model_answers_as_predict_on_the_dataset(keras, by_keras, tmp_path):
    """A PNG that is sent has the scores that Keras's own pipeline gives it."""
    layers = keras.layers
    image = keras.Input((96, 64, 3))
    signal = layers.Conv2D(4, 5, strides=3)(layers.Rescaling(1 / 255)(image))
    model = keras.Model(image, layers.Dense(5)(layers.Flatten()(signal)))
    folder = tmp_path / "models" / "pictures"
    (folder / "1").mkdir(parents=True)
    model.save(folder / "1" / "model.keras")
    (folder / "basket.toml").write_text(
        '[image]\nsize = [96, 64]\nscale = "none"\n'
        'resize = "image_dataset_from_directory"\n'
    )
    data, wanted = saved(picture("RGB", 301, 199)), _wanted((96, 64))
    with serving("--threads=4", model_dir=str(folder.parent)) as server:
        reply = server.request("POST", "/predict", data)
    (scores,) = reply.json()["predictions"]
    expected = model.predict(by_keras(data, wanted)[np.newaxis], verbose=0)[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
