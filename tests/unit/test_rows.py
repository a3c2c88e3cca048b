"""JSON rows to arrays and back: what is taken, what is refused, and in which words."""

import json
import tracemalloc

import numpy as np
import pytest

from app.codec import rows
from app.errors import BadInput
from tests.support.signatures import takes, takes_several


def decoded(text: str, signature):
    (array,) = rows.decode(text.encode(), signature).values()
    return array


def instances(*values) -> bytes:
    return json.dumps({"instances": values}).encode()


def refusal(body: bytes, signature) -> str:
    with pytest.raises(BadInput) as raised:
        rows.decode(body, signature)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "signature", "expected"),
    [
        pytest.param("[[1, 2.5], [3, 4]]", takes("f4", 2), [[1, 2.5], [3, 4]], id="2d"),
        pytest.param("[1, 2]", takes("f4"), [1, 2], id="scalars"),
        pytest.param("[[[1], [2]]]", takes("i4", 2, 1), [[[1], [2]]], id="3d"),
        pytest.param("[[1, 2, 3]]", takes("f4", None), [[1, 2, 3]], id="free size"),
        pytest.param("[[], []]", takes("i4", None), [[], []], id="free size of zero"),
        pytest.param("[true, false]", takes("?"), [True, False], id="bools"),
        pytest.param("[-128, 127]", takes("i1"), [-128, 127], id="ends of int8"),
        pytest.param(f"[0, {2**64 - 1}]", takes("u8"), [0, 2**64 - 1], id="uint64"),
        pytest.param(f"[-1, {2**63}]", takes("f8"), [-1, 2**63], id="wide mix"),
        pytest.param("[1e-50]", takes("f4"), [0], id="too small is zero"),
        pytest.param('[{"x": 1}, {"x": 2}]', takes("f4"), [1, 2], id="named rows"),
        pytest.param("[NaN]", takes("f4"), [np.nan], id="NaN"),
        pytest.param("[-Infinity]", takes("f4"), [-np.inf], id="infinity"),
        pytest.param(
            f"[{'9' * 300}, NaN]", takes("f8"), [1e300, np.nan], id="300 digits"
        ),
    ],
)
@pytest.mark.parametrize(
    "extra",
    ["", ', "signature_name": "serving_default"', ', "x": [true]', ', "x": ["y"]'],
    ids=["at once", "with options", "with a walk for bools", "with a walk for strings"],
)
def test_decode(text, signature, expected, extra):
    """Rows that fit become one array of the input's dtype, however they are read."""
    array = decoded(f'{{"instances": {text}{extra}}}', signature)
    assert array.dtype == signature.inputs[0].dtype
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        (b'{"instances": [[1, 2], [3, 4]]}', takes("f4", 2)),
        (b'{"instances": [1], "signature_name": "serving_default"}', takes("f4")),
        (b'{"instances": [{"x": [1]}, {"x": [2]}]}', takes("f4", 1)),
    ],
    ids=["plain", "with options", "named rows"],
)
def test_read_at_once(monkeypatch, body, signature):
    """Plain rows are read by NumPy at once; Python looks at no single value."""
    monkeypatch.setattr(rows, "_walk", None)
    rows.decode(body, signature)


def test_decode_several_inputs():
    """Rows of a model with several inputs are objects, in any order of their keys."""
    body = instances({"a": [1, 2], "b": 3}, {"b": 4, "a": [5, 6]})
    arrays = rows.decode(body, takes_several(a=("f4", 2), b=("i4",)))
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "a": [[1, 2], [5, 6]],
        "b": [3, 4],
    }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", "the body is empty, expected JSON", id="empty"),
        pytest.param(b"{", "the body is not JSON: ", id="not JSON"),
        pytest.param(b"[[1]]", "expected a JSON object: ", id="a list"),
        pytest.param(b"null", "expected a JSON object: ", id="null"),
        pytest.param(b'{"inputs": 1}', 'no "instances" in the request', id="missing"),
        pytest.param(b'{"instances": []}', '"instances" must be a list', id="no rows"),
        pytest.param(b'{"instances": 5}', '"instances" must be a list', id="number"),
        pytest.param(b'{"instances": {"0": 1}}', '"instances" must be', id="object"),
        pytest.param(b'{"instances": "ab"}', '"instances" must be', id="string"),
        pytest.param(b'{"instances": null}', '"instances" must be', id="null rows"),
    ],
)
def test_no_rows(body, text):
    """A body without a list of rows is refused, and shown what was expected."""
    assert refusal(body, takes("f4")).startswith(text)


@pytest.mark.parametrize(
    ("values", "signature", "text"),
    [
        pytest.param(
            [[1, 2], [3]],
            takes("f4", 2),
            "instances[1]: expected 2 values, given 1; a row has shape (2,)",
            id="ragged",
        ),
        pytest.param(
            [[[1, 2], [3]]],
            takes("f4", 2, 2),
            "instances[0][1]: expected 2 values, given 1; a row has shape (2, 2)",
            id="ragged inside",
        ),
        pytest.param(
            [[1], [2, 3]],
            takes("f4", None),
            "instances[1]: expected 1 values, given 2; a row has shape (any,)",
            id="ragged where the size is free",
        ),
        pytest.param(
            [[[1], [2, 3]]],
            takes("f4", None, None),
            "instances[0][1]: expected 1 values, given 2; a row has shape (any, any)",
            id="ragged inside where sizes are free",
        ),
        pytest.param(
            [[1, 2, 3]],
            takes("f4", 2),
            "instances[0]: expected 2 values, given 3; a row has shape (2,)",
            id="too wide",
        ),
        pytest.param(
            [1],
            takes("f4", 2),
            "instances[0]: expected a list, given 1",
            id="too flat",
        ),
        pytest.param(
            [[1, [2, 3]]],
            takes("f4", 2),
            "instances[0][1]: expected float32, given a list of 2",
            id="too deep",
        ),
        pytest.param(
            [[], []],
            takes("f4", None, 3),
            "instances[0]: expected shape (any, 3), given (0,)",
            id="no values to tell the depth",
        ),
    ],
)
def test_wrong_shape(values, signature, text):
    """A row of another shape is refused with the place where it breaks."""
    assert refusal(instances(*values), signature) == text


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        pytest.param(True, "true", id="bool"),
        pytest.param(None, "null", id="null"),
        pytest.param("7", "the string '7'", id="string"),
        pytest.param("x" * 99, f"the string '{'x' * 40}'", id="long string"),
        pytest.param({"b64": "AA"}, "an object", id="object"),
        pytest.param([], "a list of 0", id="empty list"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_odd_value_among_numbers(odd, shown, place):
    """A value that is no number is named with its place; nothing is read out of it."""
    row: list[object] = [1, 2.5, 3]
    row[place] = odd
    assert refusal(instances([0, 0, 0], row), takes("f4", 3)) == (
        f"instances[1][{place}]: expected float32, given {shown}"
    )


@pytest.mark.parametrize(
    ("text", "signature", "problem"),
    [
        pytest.param("[1, 2.5]", takes("i4"), "[1]: expected int32, given 2.5", id="f"),
        pytest.param("[1.0]", takes("i4"), "[0]: expected int32, given 1.0", id="f.0"),
        pytest.param("[1e3]", takes("u1"), "[0]: expected uint8, given 1000.0", id="e"),
        pytest.param("[NaN]", takes("i4"), "[0]: expected int32, given NaN", id="NaN"),
        pytest.param(
            "[1, Infinity]", takes("i8"), "[1]: expected int64, given Infinity", id="oo"
        ),
        pytest.param("[true, 1]", takes("?"), "[1]: expected bool, given 1", id="1"),
        pytest.param("[0]", takes("?"), "[0]: expected bool, given 0", id="0"),
        pytest.param(
            "[true]", takes("i1"), "[0]: expected int8, given true", id="true"
        ),
        pytest.param(
            "[null]", takes("f8"), "[0]: expected float64, given null", id="n"
        ),
    ],
)
def test_wrong_type(text, signature, problem):
    """A value of another type than the input's is refused, even where it is equal."""
    body = f'{{"instances": {text}}}'.encode()
    assert refusal(body, signature) == f"instances{problem}"


@pytest.mark.parametrize(
    ("values", "signature", "text"),
    [
        pytest.param(
            [[0, 128]],
            takes("i1", 2),
            "instances[0][1]: 128 is out of range for int8",
            id="int8",
        ),
        pytest.param(
            [5, -1], takes("u4"), "instances[1]: -1 is out of range for uint32", id="-1"
        ),
        pytest.param(
            [-1, 2**64 - 1],
            takes("u8"),
            "instances[0]: -1 is out of range for uint64",
            id="no common type",
        ),
        pytest.param(
            [2**63],
            takes("i8"),
            f"instances[0]: {2**63} is out of range for int64",
            id="int64",
        ),
        pytest.param(
            [[0.0, -1e39]],
            takes("f4", 2),
            "instances[0][1]: -1e+39 is out of range for float32",
            id="float32",
        ),
        pytest.param(
            [0, 10**39],
            takes("f4"),
            "instances[1]: 1e+39 is out of range for float32",
            id="a whole number beyond float32",
        ),
        pytest.param(
            [7e4],
            takes("f2"),
            "instances[0]: 70000.0 is out of range for float16",
            id="float16",
        ),
    ],
)
@pytest.mark.parametrize("extra", [{}, {"x": [True]}], ids=["at once", "with a walk"])
def test_out_of_range(values, signature, text, extra):
    """A number that the input's dtype can't hold is refused, never wrapped or cut."""
    body = json.dumps({"instances": values} | extra).encode()
    assert refusal(body, signature) == text


@pytest.mark.parametrize("beside", ["0", "NaN"])
@pytest.mark.parametrize(("dtype", "digits"), [("f4", 25), ("f8", 25), ("f8", 300)])
def test_huge_integer(dtype, digits, beside):
    """An integer of many digits is a float, as long as the float can hold it."""
    huge = "7" * digits
    array = decoded(f'{{"instances": [{huge}, {beside}]}}', takes(dtype))
    assert array[0] == np.dtype(dtype).type(float(huge))


@pytest.mark.parametrize("beside", ["0", "NaN"])
@pytest.mark.parametrize("digits", [25, 300, 400, 4000, 9000])
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_huge_integer_refused(dtype, digits, beside):
    """An integer of more digits than any type holds is refused in a short text."""
    body = f'{{"instances": [{"7" * digits}, {beside}]}}'.encode()
    assert len(refusal(body, takes(dtype))) < 400


@pytest.mark.parametrize("beside", ["0", "NaN"])
@pytest.mark.parametrize("digits", [310, 4000, 9000])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_huge_integer_is_not_infinity(dtype, digits, beside):
    """An integer beyond float64 is refused too, and does not become infinity."""
    body = f'{{"instances": [{"7" * digits}, {beside}]}}'.encode()
    assert "is infinity when parsed as double" in refusal(body, takes(dtype))


@pytest.mark.parametrize("token", ["1", "NaN"])
@pytest.mark.parametrize("depth", [10, 100, 900, 50_000])
def test_deep_nesting(token, depth):
    """Thousands of brackets are a bad input, and not a crash."""
    nest = "[" * depth + token + "]" * depth
    text = refusal(f'{{"instances": [{nest}]}}'.encode(), takes("f4", 1))
    assert text == "instances[0][0]: expected float32, given a list of 1" or (
        text.startswith("the body is not JSON: ")
    )


def test_string_among_many():
    """A long string costs no more than itself, however many values stand beside it.

    NumPy alone would take 80 MB here: the string's length for each of the values.
    """
    body = instances("x" * 4000, *[""] * 5000)
    tracemalloc.start()
    try:
        text = refusal(body, takes("f4"))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.startswith("instances[0]: expected float32, given the string 'xxx")
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize(
    ("values", "text"),
    [
        pytest.param(
            [{"a": 1, "b": 2}, {"a": 1}],
            "instances[1]: keys must be equal to a, b, given a",
            id="missing",
        ),
        pytest.param(
            [{"a": 1, "b": 2, "c": 3}],
            "instances[0]: keys must be equal to a, b, given a, b, c",
            id="extra",
        ),
        pytest.param(
            [{}], "instances[0]: keys must be equal to a, b, given none", id="no keys"
        ),
        pytest.param(
            [{str(n) * 50: n for n in range(10)}],
            "instances[0]: keys must be equal to a, b, given "
            + ", ".join(str(n) * 40 for n in range(8))
            + ", ...",
            id="long keys",
        ),
        pytest.param(
            [1, 2], "instances[0]: expected an object with a, b", id="no objects"
        ),
        pytest.param(
            [{"a": 1, "b": 2}, [1, 2]],
            "instances[1]: expected an object with a, b",
            id="mixed",
        ),
        pytest.param(
            [{"a": 1, "b": 2}, {"a": 1, "b": [2]}],
            "instances[1].b: expected int32, given a list of 1",
            id="wrong shape",
        ),
        pytest.param(
            [{"a": 1, "b": 2}, {"a": "1", "b": 2}],
            "instances[1].a: expected float32, given the string '1'",
            id="wrong type",
        ),
        pytest.param(
            [{"a": 1, "b": 2**31}],
            f"instances[0].b: {2**31} is out of range for int32",
            id="out of range",
        ),
    ],
)
def test_several_inputs_refused(values, text):
    """With several inputs a refusal names the row, and the key where it is one's."""
    signature = takes_several(a=("f4",), b=("i4",))
    assert refusal(instances(*values), signature) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([{"x": 1}, 2], "instances[1]: expected an object with x"),
        ([{"y": 1}], "instances[0]: keys must be equal to x, given y"),
    ],
    ids=["mixed", "another name"],
)
def test_one_input_named(values, text):
    """With one input rows may be objects, but then all, and by its name."""
    assert refusal(instances(*values), takes("f4")) == text


def test_half_a_surrogate_pair():
    """A key that is no text is refused in words that an answer can carry."""
    body = b'{"instances": [{"\\ud800": NaN}]}'
    refusal(body, takes_several(a=("f4",), b=("f4",))).encode()


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        pytest.param(
            {"y": np.array([0.2, 1], "f4")}, '{"predictions":[0.2,1.0]}', id="scalars"
        ),
        pytest.param(
            {"y": np.array([[1, 2]], "i8")}, '{"predictions":[[1,2]]}', id="list"
        ),
        pytest.param(
            {"y": np.array([[0.1, np.nan], [np.inf, -np.inf]], "f4")},
            '{"predictions":[[0.1,NaN],[Infinity,-Infinity]]}',
            id="not finite",
        ),
        pytest.param(
            {"y": np.array([[0.2]], "f4"), "z": np.array([True])},
            '{"predictions":[{"y":[0.2],"z":true}]}',
            id="several",
        ),
        pytest.param(
            {"y": np.array([0.2, np.nan], "f4"), "z": np.array([7, 8], "u1")},
            '{"predictions":[{"y":0.2,"z":7},{"y":NaN,"z":8}]}',
            id="several, not finite",
        ),
        pytest.param(
            {"y": np.array([[1, 2], [3, 4]], "f4").T},
            '{"predictions":[[1.0,3.0],[2.0,4.0]]}',
            id="not contiguous",
        ),
    ],
)
def test_encode(outputs, text):
    """Answers are TensorFlow Serving's row form, with floats in their shortest."""
    assert rows.encode(outputs).decode() == text
