"""The check of a model against the [image] table of its basket.toml."""

from types import SimpleNamespace

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.errors import ModelLoadError
from app.repository.loading.image_fit import check_image_fit
from app.settings.image_config import ImageClass, ImageConfig

NAMES = tuple(ImageClass(str(place), str(place)) for place in range(3))


def spec(dtype, *shape):
    return TensorSpec("x", np.dtype(dtype), shape)


def check(inputs, outputs, scale="none", classes=NAMES, name="serving_default"):
    signature = Signature(tuple(inputs), tuple(outputs))
    config = ImageConfig((4, 5), "RGB", scale, "nearest", classes)
    check_image_fit(config, SimpleNamespace(signatures={name: signature}))


SCORES = [spec("f4", 3)]


@pytest.mark.parametrize(
    ("given", "scale"),
    [
        (spec("f4", 4, 5, 3), "imagenet"),
        (spec("f2", None, None, 3), "0..1"),
        (spec("u1", 4, 5, 3), "none"),
        (spec("i4", 4, None, 3), "none"),
        (spec("f4", 4, 5, 3), "none"),
    ],
)
def test_matching_model_is_accepted(given, scale):
    """The model accepts rows of the shape and dtype of [image]."""
    check([given], SCORES, scale)


def test_model_without_classes_may_have_any_output():
    """Only class names are compared with the output."""
    check([spec("f4", 4, 5, 3)], [spec("f4", 7, 7), spec("f4")], classes=())


@pytest.mark.parametrize(
    ("inputs", "outputs", "scale", "expected"),
    [
        ([spec("f4", 4, 5, 3)] * 2, SCORES, "none", "a model with one input"),
        ([], SCORES, "none", "a model with one input"),
        ([spec("f4", 5, 4, 3)], SCORES, "none", "makes rows (4, 5, 3), the model"),
        ([spec("f4", 60)], SCORES, "none", "the model takes (60,)"),
        ([spec("u1", 4, 5, 3)], SCORES, "0..1", '"0..1" does not make uint8'),
        ([spec("i1", 4, 5, 3)], SCORES, "none", '"none" does not make int8'),
        ([spec("?", 4, 5, 3)], SCORES, "none", '"none" does not make bool'),
        ([spec("O", 4, 5, 3)], SCORES, "none", '"none" does not make object'),
        ([spec("f4", 4, 5, 3)], [spec("f4", 4)], "none", "has 3 classes, the model"),
        ([spec("f4", 4, 5, 3)], SCORES * 2, "none", "output is (3,), (3,)"),
    ],
)
def test_mismatch_is_a_load_error_with_both_sides(inputs, outputs, scale, expected):
    """The text names the value of [image] and that of the model."""
    with pytest.raises(ModelLoadError) as raised:
        check(inputs, outputs, scale)
    assert expected in str(raised.value)


def test_model_without_the_default_signature_is_refused():
    """Pictures go to the signature serving_default."""
    with pytest.raises(ModelLoadError, match="one input"):
        check([spec("f4", 4, 5, 3)], SCORES, name="other")
