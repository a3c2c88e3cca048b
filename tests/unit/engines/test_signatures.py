"""Tensor specs, dtypes, and the texts of framework errors."""

import json

import numpy as np
import pytest

from app.engines.base import Signature, TensorSpec
from app.engines.loading import error_first_line, refuse_strings, row_spec
from app.errors import ModelLoadError

FLOAT32 = np.dtype(np.float32)


@pytest.mark.parametrize(
    ("expected", "given", "fits"),
    [
        ((), (), True),
        ((2,), (2,), True),
        ((2,), (3,), False),
        ((2,), (2, 1), False),
        ((2,), (), False),
        ((None, 2), (7, 2), True),
        ((None, 2), (0, 2), True),
        ((None, 2), (7, 3), False),
    ],
)
def test_spec_accepts_shapes_of_equal_rank_and_sizes(expected, given, fits):
    """A row's shape fits if its rank is equal and each size is equal or free."""
    assert TensorSpec("x", FLOAT32, expected).accepts(given) is fits


@pytest.mark.parametrize(
    ("shape", "text"),
    [((), "()"), ((3,), "(3,)"), ((None,), "(any,)"), ((None, 16), "(any, 16)")],
)
def test_shape_text_shows_free_sizes_as_any(shape, text):
    """A shape is written as a tuple, with any for a free size."""
    assert TensorSpec("x", FLOAT32, shape).shape_text() == text


def test_blank_rows_are_zeros_with_free_sizes_of_one():
    """Blank rows have the spec's dtype and size 1 in free dimensions."""
    blank = TensorSpec("x", np.dtype(np.int16), (None, 3)).blank(2)
    assert blank.dtype == np.int16
    assert blank.tolist() == [[[0, 0, 0]], [[0, 0, 0]]]


@pytest.mark.parametrize(
    ("dtype", "served"),
    [
        *(("float32", "float32"), ("string", "object")),
        *(("bool", "bool"), ("uint8", "uint8"), ("float16", "float16")),
    ],
)
def test_framework_dtype_maps_to_a_numpy_dtype(dtype, served):
    """Strings are served as objects; others keep their dtype."""
    assert row_spec("x", dtype, [3]) == TensorSpec("x", np.dtype(served), (3,))


def test_bfloat16_is_served_as_float32():
    """The spec keeps the model's own dtype, also as JSON and back."""
    spec = row_spec("x", "bfloat16", [3])
    assert spec == TensorSpec("x", FLOAT32, (3,), "bfloat16")
    assert TensorSpec.from_list(json.loads(json.dumps(spec.to_list()))) == spec


@pytest.mark.parametrize("dtype", ["complex64", "resource", "float8_e4m3fn", "qint8"])
def test_unsupported_dtype_is_a_load_error(dtype):
    """The error names the tensor and its dtype."""
    with pytest.raises(ModelLoadError, match=f"x: {dtype} is not served"):
        row_spec("x", dtype, [3])


def test_refuse_strings_names_the_string_input():
    """A signature of numbers passes; one with a string input is a load error."""
    number = TensorSpec("number", FLOAT32, ())
    refuse_strings(Signature((number,), (number,)))
    word = TensorSpec("word", np.dtype(object), ())
    with pytest.raises(ModelLoadError, match="word is text"):
        refuse_strings(Signature((word,), (number,)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n wrong size\n (2, 3)", "wrong size"),
        ("", "ValueError"),
        ("A failed.\n\nException encountered: B failed.\nC", "B failed."),
        ("x" * 1000, "x" * 300),
    ],
)
def test_error_first_line_is_the_cause_in_300_characters(text, line):
    """An error is shortened to one line: the cause, else the error's class."""
    assert error_first_line(ValueError(text)) == line
