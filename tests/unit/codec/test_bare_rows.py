"""Rows of shape (1,) without a list around their value."""

import json

import numpy as np
import pytest

from app.codec import rows
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import BadInput
from tests.support.signatures import takes

ONE = TensorSpec("x", np.dtype("f4"), (1,))
BARE = rows.Form(is_bare=True)
PAIR = Signature((ONE, TensorSpec("name", np.dtype("O"), (1,))), (ONE,))


def decoded(payload, signature):
    return rows.decode(json.dumps(payload).encode(), {DEFAULT_SIGNATURE: signature})


@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize("count", [3, 3000])
def test_values_are_rows_of_one_value(key, count):
    """Rows and columns of bare values get the shape (rows, 1), whatever their size."""
    request = decoded({key: [1.0, 2, 5.5] * count}, takes("f4", 1))
    assert request.form.is_bare
    wanted = np.array([[1], [2], [5.5]] * count, "f4")
    np.testing.assert_array_equal(request.inputs["x"], wanted, strict=True)


def test_text_is_a_row_of_a_text_model():
    """A bare string, and its base64, is a row."""
    request = decoded({"instances": ["good", {"b64": "YmFk"}]}, takes("O", 1))
    assert request.inputs["x"].tolist() == [[b"good"], [b"bad"]]


def test_object_of_bare_values_is_a_row():
    """In a row with names each input may be bare."""
    request = decoded({"instances": [{"x": 60, "name": "a"}]}, PAIR)
    assert request.form.is_bare
    assert request.inputs["x"].tolist() == [[60]]
    assert request.inputs["name"].tolist() == [[b"a"]]
    listed = decoded({"instances": [{"x": [60], "name": "a"}]}, PAIR)
    assert not listed.form.is_bare
    assert listed.inputs["x"].tolist() == [[60]]


@pytest.mark.parametrize("size", [2, 2000])
def test_first_row_decides(size):
    """Bare and listed values do not mix."""
    with pytest.raises(
        BadInput, match=r"instances\[1\]: expected float32, given a list"
    ):
        decoded({"instances": [1, [2]] + [3] * size}, takes("f4", 1))
    with pytest.raises(BadInput, match=r"instances\[1\]: expected a list, given 2"):
        decoded({"instances": [[1], 2] + [[3]] * size}, takes("f4", 1))


def test_rows_of_other_shapes_are_never_bare():
    """Only (1,) has one value."""
    assert not decoded({"instances": [1, 2]}, takes("f4")).form.is_bare
    for shape in ((2,), (1, 1), (None,)):
        with pytest.raises(BadInput, match="expected a list, given 1"):
            decoded({"instances": [1, 2]}, takes("f4", *shape))


def test_bare_rows_are_answered_by_bare_values():
    """Outputs of shape (1,) lose their list, others keep it."""
    one, two = np.array([[2.5], [3]], "f4"), np.array([[1, 2], [3, 4]], "f4")
    text = np.array([[b"a"], [b"b"]], object)
    assert json.loads(rows.encode({"y": one}, BARE)) == {"predictions": [2.5, 3.0]}
    assert json.loads(rows.encode({"y": one, "z": two}, BARE)) == {
        "predictions": [{"y": 2.5, "z": [1, 2]}, {"y": 3, "z": [3, 4]}]
    }
    assert json.loads(
        rows.encode({"y": text}, rows.Form(columnar=True, is_bare=True))
    ) == {"outputs": ["a", "b"]}
    assert json.loads(rows.encode({"y": one})) == {"predictions": [[2.5], [3.0]]}
