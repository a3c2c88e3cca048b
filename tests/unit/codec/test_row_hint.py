"""What errors show of a row's form."""

import numpy as np
import pytest

from app.codec import rows
from app.codec.row_hint import row_hint
from app.engines.base import DEFAULT_SIGNATURE, TensorSpec
from app.errors import BadInput
from tests.support.signatures import takes


@pytest.mark.parametrize(
    ("dtype", "shape", "row"),
    [
        ("f4", (3,), "(3,): [[1, 2, 3]]"),
        ("f4", (1,), "(1,): [[1]]"),
        ("i8", (64,), "(64,): [[1, 2, ...]]"),
        ("f4", (None,), "(any,): [[1, 2, ...]]"),
        ("f4", (2, 2), "(2, 2): [[[1, 2], [3, 4]]]"),
        ("f4", (28, 28, 1), "(28, 28, 1): [[[[1], ...], ...]]"),
        ("f4", (3, 3, 3), "(3, 3, 3): [[[[1, ...], ...], ...]]"),
        ("f4", (0,), "(0,): [[]]"),
        ("O", (2,), '(2,): [["a", "a"]]'),
        ("O", (), '(): ["a"]'),
        ("?", (2,), "(2,): [[true, true]]"),
    ],
)
def test_short_rows_are_shown_whole_and_long_ones_begun(dtype, shape, row):
    """The example is a list with one row of that shape."""
    spec = TensorSpec("x", np.dtype(dtype), shape)
    assert row_hint(spec) == f"a row has shape {row}"


def test_row_of_a_named_input_is_an_object():
    """The example has the input's name if rows are objects."""
    spec = TensorSpec("age", np.dtype("f4"), (2,))
    assert row_hint(spec, ".age") == 'a row has shape (2,): [{"age": [1, 2], ...}]'


@pytest.mark.parametrize(
    ("instances", "problem"),
    [
        ("[1, 2, 3]", "instances[0]: expected a list, given 1"),
        ("[[1, 2]]", "instances[0]: expected 3 values, given 2"),
        ("[[1, 2, [3]]]", "instances[0][2]: expected float32, given a list of 1"),
    ],
)
@pytest.mark.parametrize("padding", [0, 5000])
def test_error_about_a_row_shows_a_right_one(instances, problem, padding):
    """The commonest slip is one row without the outer list."""
    body = f'{{"instances": {instances}{" " * padding}}}'.encode()
    with pytest.raises(BadInput) as raised:
        rows.decode(body, {DEFAULT_SIGNATURE: takes("f4", 3)})
    assert str(raised.value) == f"{problem}; a row has shape (3,): [[1, 2, 3]]"


def test_error_about_a_value_shows_no_row():
    """A value of another type is in the right place."""
    with pytest.raises(BadInput) as raised:
        rows.decode(
            b'{"instances": [[1, 2, "3"]]}', {DEFAULT_SIGNATURE: takes("f4", 3)}
        )
    text = "instances[0][2]: expected float32, given the string '3'"
    assert str(raised.value) == text
