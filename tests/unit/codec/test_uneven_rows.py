"""Rows of unlike shapes in one request."""

import json

import numpy as np
import pytest

from app.codec import rows
from app.codec.bounds import Bounds
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, TooLarge
from tests.support.signatures import takes, takes_several

SPLITS = Bounds(splits_rows=True)
# Of a body whose arrays of numbers stay text until they are read.
LONG = 2000


def decoded(payload, signature, bounds=SPLITS):
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return rows.decode(body, {DEFAULT_SIGNATURE: signature}, bounds=bounds)


@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize("length", [3, LONG])
def test_rows_of_each_length_are_a_group(key, length):
    """A group has the rows of one shape in their order, and their places."""
    short, long = [1.5] * 2, [2.5] * length
    given = {key: [short, long, [4.5] * 2, short, [5] * length]}
    request = decoded(given, takes("f4", None))
    assert request.inputs.places == [[0, 2, 3], [1, 4]]
    ones, others = (group["x"] for group in request.inputs.groups)
    np.testing.assert_array_equal(ones[:, 0], [1.5, 4.5, 1.5])
    wanted = np.array([[2.5] * length, [5] * length], "f4")
    np.testing.assert_array_equal(others, wanted, strict=True)
    assert request.form == rows.Form(columnar=key == "inputs")


def test_rows_in_one_long_text_are_split_at_their_commas():
    """Inner lists, blanks and words of floats do not end a row."""
    one = "[ [1, NaN] ,\n [3,4]]"
    two = f"[[5, 6], {', '.join(['[7, -Infinity]'] * LONG)}]"
    body = f'{{"instances": [ {one}\t,{two} , {one}]}}'.encode()
    uneven = decoded(body, takes("f8", None, 2)).inputs
    assert uneven.places == [[0, 2], [1]]
    short, long = (group["x"] for group in uneven.groups)
    np.testing.assert_array_equal(short, [[[1, np.nan], [3, 4]]] * 2)
    np.testing.assert_array_equal(long[0, 1:], [[7, -np.inf]] * LONG)


@pytest.mark.parametrize(
    ("shape", "given", "groups"),
    [
        ((None,), [[1] * LONG, [], [2] * LONG], {(LONG,): [0, 2], (0,): [1]}),
        ((None,), [[], [1] * LONG], {(0,): [0], (LONG,): [1]}),
        ((None, None), [[[]], [[1]] * LONG], {(1, 0): [0], (LONG, 1): [1]}),
    ],
)
@pytest.mark.parametrize("is_named", [False, True])
def test_rows_without_values_are_groups_in_a_long_text(shape, given, groups, is_named):
    """An empty list is a row of its own shape, whatever the length of the others."""
    instances = [{"x": row} for row in given] if is_named else given
    uneven = decoded({"instances": instances}, takes("f4", *shape)).inputs
    shapes = [group["x"].shape[1:] for group in uneven.groups]
    assert dict(zip(shapes, uneven.places, strict=True)) == groups


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("length", [1, LONG])
def test_row_nested_less_than_a_long_one_is_bad_input(length, is_named):
    """The refusal names the row, also where the next rows settle no size of it."""
    given = [[], [[[1]] * length]]
    instances = [{"x": row} for row in given] if is_named else given
    with pytest.raises(BadInput, match=r"instances\[0\].*: expected shape"):
        decoded({"instances": instances}, takes("f4", None, None, None))


def test_words_of_unlike_number_are_grouped():
    """Strings are rows as numbers are."""
    given = {"instances": [["a"], ["b", "c"], ["d"]]}
    uneven = decoded(given, takes("O", None)).inputs
    assert uneven.places == [[0, 2], [1]]
    assert uneven.groups[0]["x"].tolist() == [[b"a"], [b"d"]]


def test_rows_of_several_inputs_are_grouped_by_all_shapes():
    """Rows share a group if each of their inputs has the same shape."""
    signature = takes_several(a=("f4", None), b=("i4", None), c=("O",))
    uneven = decoded(
        {
            "instances": [
                {"a": [1], "b": [1], "c": "k"},
                {"a": [2], "b": [1, 2], "c": "l"},
                {"a": [3], "b": [3], "c": "m"},
            ]
        },
        signature,
    ).inputs
    assert uneven.places == [[0, 2], [1]]
    first = uneven.groups[0]
    assert first["a"].tolist() == [[1], [3]]
    assert first["b"].tolist() == [[1], [3]]
    assert first["c"].tolist() == [b"k", b"m"]


def test_uneven_rows_are_refused_where_they_are_not_split():
    """The event loop, which does not split rows, gets an error of its own."""
    with pytest.raises(rows.UnevenRows):
        decoded({"instances": [[1], [1, 2]]}, takes("f4", None), Bounds())


@pytest.mark.parametrize("bounds", [SPLITS, Bounds()])
def test_uneven_rows_of_a_fixed_shape_are_bad_input(bounds):
    """A model that takes one shape never gets groups."""
    with pytest.raises(BadInput, match=r"instances\[1\]: expected 2 values") as raised:
        decoded({"instances": [[1, 2], [1]]}, takes("f4", 2), bounds)
    assert not isinstance(raised.value, rows.UnevenRows)


@pytest.mark.parametrize("length", [3, LONG])
@pytest.mark.parametrize(
    ("row", "text"),
    [
        (5, "expected a list, given 5"),
        ([[1, "a"]], "[0][1]: expected float32, given the string 'a'"),
        ([[1, 2, 3]], "[0]: expected 2 values, given 3"),
        ([[1, 1e300]], "[0][1]: 1e+300 is out of range for float32"),
    ],
)
def test_error_in_uneven_rows_has_the_rows_own_number(length, row, text):
    """The number is that of the row in the request, not in its group."""
    given = {"instances": [[[1, 2]] * length, [[1, 2]], row]}
    with pytest.raises(BadInput) as raised:
        decoded(given, takes("f4", None, 2))
    assert str(raised.value).startswith("instances[2]")
    assert text in str(raised.value)


def test_row_that_is_no_list_in_a_long_text_is_bad_input():
    """Between commas of the outer list there is one list, and nothing else."""
    rest = ",".join(["[1]"] * LONG)
    for odd in (b"", b"1", b"[1] 2", b"1 [2]"):
        body = b'{"instances": [[1,2],%b,%b]}' % (rest.encode(), odd)
        with pytest.raises(BadInput):
            decoded(body, takes("f4", None))


def test_uneven_rows_are_counted():
    """More rows than the bounds allow are refused."""
    for length in (1, LONG):
        given = {"instances": [[1], [1] * length, [1, 2, 3]]}
        with pytest.raises(TooLarge, match="rows in one request"):
            decoded(given, takes("f4", None), Bounds(2, splits_rows=True))


def test_columns_of_unlike_numbers_of_rows_are_bad_input():
    """Each row needs all of its inputs."""
    signature = takes_several(a=("f4", None), b=("f4", None))
    given = {"inputs": {"a": [[1], [1, 2]], "b": [[1]]}}
    text = r"inputs\.a has 2 rows and inputs\.b 1"
    with pytest.raises(BadInput, match=text):
        decoded(given, signature)


def uneven(*places):
    return Uneven([{}] * len(places), list(places))


def test_outputs_are_joined_in_the_order_of_the_rows():
    """Rows of one shape are one array again."""
    outputs = [{"y": np.array([[1.5], [3]])}, {"y": np.array([[2.0]])}]
    joined = uneven([0, 2], [1]).joined(outputs)
    np.testing.assert_array_equal(joined["y"], [[1.5], [2], [3]], strict=True)


def test_uneven_outputs_are_written_row_by_row():
    """Rows of unlike shapes are lists of unlike lengths, beside even outputs."""
    outputs = [
        {"n": np.array([2, 2]), "y": np.array([[1, 2], [5, 6]], "f4")},
        {"n": np.array([1]), "y": np.array([[np.nan]], "f4")},
    ]
    joined = uneven([0, 2], [1]).joined(outputs)
    assert rows.encode(joined) == (
        b'{"predictions":[{"n":2,"y":[1.0,2.0]},{"n":1,"y":[NaN]},'
        b'{"n":2,"y":[5.0,6.0]}]}'
    )
    columns = rows.encode({"y": joined["y"]}, rows.Form(columnar=True))
    assert columns == b'{"outputs":[[1.0,2.0],[NaN],[5.0,6.0]]}'


def test_uneven_texts_are_written_row_by_row():
    """Strings are rows of unlike lengths too."""
    outputs = [
        {"y": np.array([[b"a"]], object)},
        {"y": np.array([[b"b", b"c"]], object)},
    ]
    joined = uneven([1], [0]).joined(outputs)
    assert json.loads(rows.encode(joined)) == {"predictions": [["b", "c"], ["a"]]}
