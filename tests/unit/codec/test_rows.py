"""JSON rows to arrays and back: what is taken, what is refused, and in which words."""

import json
import sys
import time
import tracemalloc

import numpy as np
import pytest

from app.codec import nested, rows
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, Unsupported
from tests.support.signatures import takes, takes_several


def inputs(body: bytes, signature):
    return rows.decode(body, {DEFAULT_SIGNATURE: signature}).inputs


def decoded(text: str, signature):
    (array,) = inputs(text.encode(), signature).values()
    return array


def instances(*values) -> bytes:
    return json.dumps({"instances": values}).encode()


def refusal(body: bytes, signature) -> str:
    with pytest.raises(BadInput) as raised:
        inputs(body, signature)
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
        pytest.param("[NaN]", takes("f4"), [np.nan], id="NaN"),
        pytest.param("[-Infinity]", takes("f4"), [-np.inf], id="infinity"),
        pytest.param("[Inf, -Inf]", takes("f4"), [np.inf, -np.inf], id="Inf"),
        pytest.param("[0.1, 65504]", takes("f2"), [0.1, 65504], id="half precision"),
        pytest.param('["a", "ü"]', takes("O"), [b"a", "ü".encode()], id="strings"),
        pytest.param('[["a", ""]]', takes("O", 2), [[b"a", b""]], id="string rows"),
        pytest.param("[[], []]", takes("O", None), [[], []], id="rows of no strings"),
        pytest.param(
            '[{"b64": "/w=="}, "b64", {"b64": ""}]',
            takes("O"),
            [b"\xff", b"b64", b""],
            id="bytes among strings",
        ),
        pytest.param(
            '[[["a"], [{"b64": "AAE="}]]]',
            takes("O", 2, 1),
            [[[b"a"], [b"\0\1"]]],
            id="bytes deep inside",
        ),
        pytest.param(
            '["a", "true", "NaN"]', takes("O"), [b"a", b"true", b"NaN"], id="w"
        ),
        pytest.param(
            f"[{'9' * 300}, NaN]", takes("f8"), [1e300, np.nan], id="300 digits"
        ),
    ],
)
@pytest.mark.parametrize(
    "extra",
    ["", ', "signature_name": "serving_default"', ', "x": [true]', ', "x": ["y"]'],
    ids=[
        "at once",
        "with options",
        "with a search for bools",
        "with a search for strings",
    ],
)
@pytest.mark.parametrize(
    "form",
    ['{{"instances": {}{}}}', '{{"inputs": {}{}}}', '{{"inputs": {{"x": {}}}{}}}'],
    ids=["rows", "column", "named column"],
)
def test_decode(text, signature, expected, extra, form):
    """Rows that fit become one array of the input's dtype, however they are read."""
    array = decoded(form.format(text, extra), signature)
    assert array.dtype == signature.inputs[0].dtype
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))


@pytest.mark.parametrize(
    ("text", "signature", "expected"),
    [
        pytest.param('[{"x": 1}, {"x": 2}]', takes("f4"), [1, 2], id="numbers"),
        pytest.param(
            '[{"x": "a"}, {"x": {"b64": "Yg=="}}]', takes("O"), [b"a", b"b"], id="bytes"
        ),
        pytest.param(
            '[{"b64": 1}]', takes_several(b64=("f4",)), [1], id="an input called b64"
        ),
        pytest.param(
            '[{"b64": "Yg=="}]', takes_several(b64=("O",)), [b"b"], id="no row, a value"
        ),
    ],
)
def test_named_rows(text, signature, expected):
    """With one input, rows may be objects by its name; a b64 object is a value."""
    array = decoded(f'{{"instances": {text}}}', signature)
    assert array.tolist() == expected


SEVERAL = takes_several(a=("f4", 2), b=("i4",), c=("O",))


def test_columns_of_several_inputs():
    """Columns of several inputs stand in one object; others are ignored."""
    body = (
        b'{"inputs": {"c": ["x", {"b64": "AA=="}], "other": 1, "b": [3, 4],'
        b' "a": [[1, 2], [5, 6]]}}'
    )
    arrays = inputs(body, SEVERAL)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "a": [[1, 2], [5, 6]],
        "b": [3, 4],
        "c": [b"x", b"\0"],
    }


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        pytest.param(
            "[[1, 2]]", "inputs: expected an object with a, b, c", id="no object"
        ),
        pytest.param(
            '{"b64": "AA=="}', "inputs: expected an object with a, b, c", id="a value"
        ),
        pytest.param(
            '{"a": [[1, 2]], "b": [1]}',
            "Missing named input: c in 'inputs' object.",
            id="missing",
        ),
        pytest.param(
            '{"a": [[1, 2]], "b": 1, "c": ["x"]}',
            "inputs.b: expected a list with at least one row",
            id="no list",
        ),
        pytest.param(
            '{"a": [[1, 2]], "b": [1], "c": ["x", "y"]}',
            "inputs.b has 1 rows and inputs.c 2; rows run in batches, so the first "
            "dimensions must be equal",
            id="different lengths",
        ),
        pytest.param(
            '{"a": [[1, 2], [3]], "b": [1, 2], "c": ["x", "y"]}',
            "inputs.a[1]: expected 2 values, given 1; a row has shape (2,)",
            id="ragged",
        ),
        pytest.param(
            '{"a": [[1, 2], [3, "4"]], "b": [1, 2], "c": ["x", "y"]}',
            "inputs.a[1][1]: expected float32, given the string '4'",
            id="wrong type",
        ),
        pytest.param(
            '{"a": [[1, 2]], "b": [2147483648], "c": ["x"]}',
            "inputs.b[0]: 2147483648 is out of range for int32",
            id="out of range",
        ),
    ],
)
def test_columns_refused(columns, text):
    """A column that does not fit is refused by its name, with the place in it."""
    assert refusal(f'{{"inputs": {columns}}}'.encode(), SEVERAL) == text


@pytest.mark.parametrize(
    ("values", "signature", "text"),
    [
        pytest.param("[1]", takes("O"), "[0]: expected string, given 1", id="number"),
        pytest.param("[true]", takes("O"), "[0]: expected string, given true", id="?"),
        pytest.param("[null]", takes("O"), "[0]: expected string, given null", id="0"),
        pytest.param(
            '["a", ["b"]]',
            takes("O"),
            "[1]: expected string, given a list of 1",
            id="[]",
        ),
        pytest.param(
            '[["a"], "b"]',
            takes("O", 1),
            "[1]: expected a list, given the string 'b'",
            id="too flat",
        ),
        pytest.param(
            '[["a", "b", "c"]]',
            takes("O", 2),
            "[0]: expected 2 values, given 3; a row has shape (2,)",
            id="too wide",
        ),
        pytest.param(
            '[["a"], ["b", "c"]]',
            takes("O", None),
            "[1]: expected 1 values, given 2; a row has shape (any,)",
            id="ragged",
        ),
        pytest.param(
            '[["a", {"b64": "AA==", "x": 1}]]',
            takes("O", 2),
            "[0][1]: expected string, given an object",
            id="another key beside b64",
        ),
        pytest.param(
            '[["a", {"b64": 1}]]',
            takes("O", 2),
            "[0][1]: expected string, given an object",
            id="b64 of a number",
        ),
        pytest.param(
            '["a", {"b64": "?"}]', takes("O"), "[1]: not base64: ", id="no base64"
        ),
        pytest.param(
            '[{"b64": "AAAA="}]', takes("O"), "[0]: not base64: ", id="wrong padding"
        ),
        pytest.param(
            '[{"b64": "AA==AA=="}]', takes("O"), "[0]: not base64: ", id="two"
        ),
        pytest.param('[{"b64": "ü"}]', takes("O"), "[0]: not base64: ", id="not ASCII"),
        pytest.param('[{"b64": "-_-_"}]', takes("O"), "[0]: not base64: ", id="url"),
        pytest.param(
            '[1, {"b64": "AA=="}]',
            takes("f4"),
            "[1]: expected float32, given an object",
            id="bytes for a number",
        ),
    ],
)
@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_strings_refused(form, values, signature, text):
    """What is neither text nor good base64 is refused where a string belongs."""
    body = f'{{"{form}": {values}}}'.encode()
    assert refusal(body, signature).startswith(form + text)


@pytest.mark.parametrize(
    "text", ["AAECAw", "AAEC\\nAw==", " AAEC Aw ", "AAECAw=="], ids=repr
)
def test_base64_is_taken_as_tensorflow_serving_does(text):
    """Blanks in base64, and padding that is missing, do not matter."""
    array = decoded(f'{{"instances": [{{"b64": "{text}"}}]}}', takes("O"))
    assert array.tolist() == [bytes(range(4))]


# Signatures.

TWO_SIGNATURES = {"serving_default": takes("f4"), "other": takes("i4", 1)}


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("serving_default", "serving_default"),
        ("other", "other"),
        ("", "serving_default"),
    ],
    ids=["the default", "another", "empty"],
)
def test_a_signature_is_chosen_by_name(name, chosen):
    """signature_name chooses what the values are read for; empty is the default."""
    value = [1] if chosen == "other" else 1
    body = json.dumps({"signature_name": name, "instances": [value]}).encode()
    request = rows.decode(body, TWO_SIGNATURES)
    assert request.signature_name == chosen
    assert request.inputs["x"].dtype == TWO_SIGNATURES[chosen].inputs[0].dtype


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(1, "'signature_name' key must be a string value.", id="number"),
        pytest.param(None, "'signature_name' key must be a string value.", id="null"),
        pytest.param(
            "x" * 99,
            f'Serving signature name: "{"x" * 80}" not found in signature def',
            id="unknown",
        ),
    ],
)
def test_no_such_signature(name, text):
    """A signature_name that is no string, or not the model's, is refused."""
    body = json.dumps({"signature_name": name, "instances": [1]}).encode()
    with pytest.raises(BadInput) as raised:
        rows.decode(body, TWO_SIGNATURES)
    assert str(raised.value) == text


def test_a_model_without_the_default_signature():
    """Where the model has no serving_default, a request must name a signature."""
    with pytest.raises(BadInput, match='"serving_default" not found'):
        rows.decode(instances(1), {"other": takes("f4")})


@pytest.mark.parametrize("dtype", ["c8", "c16", "V2"])
def test_a_dtype_that_json_can_not_carry(dtype):
    """A model whose values have no form in JSON is a 501, both ways."""
    with pytest.raises(Unsupported, match=r"^x: .* has no form in JSON$"):
        inputs(instances(1), takes(dtype))
    with pytest.raises(Unsupported, match=r"^y: .* has no form in JSON$"):
        rows.encode({"y": np.zeros(1, dtype)})


@pytest.mark.parametrize("behind", [b"}", b" and more", b'{"instances": []}', b"\0"])
def test_text_behind_the_object_is_ignored(behind):
    """A request ends where its object ends."""
    body = b'{"instances": [1, 2]}' + behind
    (array,) = inputs(body, takes("f4")).values()
    assert array.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        (b'{"instances": [[1, 2], [3, 4]]}', takes("f4", 2)),
        (b'{"instances": [1], "signature_name": "serving_default"}', takes("f4")),
        (b'{"instances": [{"x": [1]}, {"x": [2]}]}', takes("f4", 1)),
        (b'{"inputs": [[1], [2]]}', takes("f4", 1)),
        (b'{"inputs": {"x": [[1], [2]]}}', takes("f4", 1)),
        (b'{"instances": ["true", {"b64": "AA=="}]}', takes("O")),
        (b'{"inputs": {"x": [["true"], [{"b64": "AA=="}]]}}', takes("O", 1)),
    ],
    ids=[
        *("plain", "with options", "named rows", "columns", "named columns"),
        *("strings", "columns of strings"),
    ],
)
def test_read_at_once(monkeypatch, body, signature):
    """Plain rows are read by NumPy at once; Python looks at no single value."""
    monkeypatch.setattr(nested, "_settled_shape", None)
    inputs(body, signature)


@pytest.mark.parametrize(
    ("body", "signature", "problem"),
    [
        pytest.param(
            b'{"instances": [%strue]}' % (b"1," * 9999),
            takes("f4"),
            "instances[9999]: expected float32, given true",
            id="bare values",
        ),
        pytest.param(
            b'{"instances": [[[%strue]], [["x"]]]}' % (b"1," * 9999),
            takes("f4", 1, None),
            "instances[0][0][9999]: expected float32, given true",
            id="one row",
        ),
        pytest.param(
            b'{"instances": [%s[[[1]], [[3e9]]]]}' % (b"[[[1]], [[2]]]," * 9999),
            takes("i4", None, None, 1),
            "instances[9999][1][0][0]: expected int32, given 3000000000.0",
            id="nested",
        ),
        pytest.param(
            b'{"instances": [%s[[1, 2], [3]]]}' % (b"[[1, 2], [3, 4]]," * 9999),
            takes("f4", 2, None),
            "instances[9999][1]: expected 2 values, given 1; a row has shape (2, any)",
            id="uneven",
        ),
    ],
)
def test_an_odd_value_is_found_without_a_look_at_each(body, signature, problem):
    """Python calls far fewer functions than there are values, and names the first."""
    calls = []
    sys.setprofile(
        lambda frame, event, _: event == "call" and calls.append(frame.f_code)
    )
    try:
        with pytest.raises(BadInput) as raised:
            inputs(body, signature)
    finally:
        sys.setprofile(None)
    assert str(raised.value) == problem
    assert len(calls) < 1000


def test_rows_of_nothing_settle_no_sizes_within():
    """Empty lists leave free sizes within them open, as deep as they go."""
    problem = "instances[0]: expected shape (any, any), given (0,)"
    with pytest.raises(BadInput) as raised:
        inputs(b'{"instances": [[], []]}', takes("f4", None, None))
    assert str(raised.value) == problem


def test_decode_several_inputs():
    """Rows of a model with several inputs are objects, in any order of their keys."""
    body = instances({"a": [1, 2], "b": 3}, {"b": 4, "a": [5, 6]})
    arrays = inputs(body, takes_several(a=("f4", 2), b=("i4",)))
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "a": [[1, 2], [5, 6]],
        "b": [3, 4],
    }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", "JSON Parse error: The document is empty", id="empty"),
        pytest.param(b"{", "JSON Parse error: Expecting", id="not JSON"),
        pytest.param(b"[[1]]", "expected a JSON object: ", id="a list"),
        pytest.param(b"null", "expected a JSON object: ", id="null"),
        pytest.param(
            b'{"rows": 1}', "Missing 'inputs' or 'instances' key", id="neither"
        ),
        pytest.param(
            b'{"inputs": [1], "instances": [1]}',
            "expected only one of 'inputs' or 'instances', given both",
            id="both",
        ),
        *(
            pytest.param(
                f'{{"instances": {value}}}'.encode(),
                "'instances' must be a list/array with at least one row",
                id=f"instances {value}",
            )
            for value in ("[]", "5", '{"0": 1}', '"ab"', "null")
        ),
        *(
            pytest.param(
                f'{{"inputs": {value}}}'.encode(),
                "inputs: expected a list with at least one row",
                id=f"inputs {value}",
            )
            for value in ("[]", "5", '{"b64": "AA=="}', '"ab"', "null")
        ),
        pytest.param(
            b'{"inputs": {"x": 1}}',
            "inputs.x: expected a list with at least one row",
            id="a named column that is no list",
        ),
        pytest.param(
            b'{"inputs": {"y": [1]}}',
            "Missing named input: x in 'inputs' object.",
            id="a column of another name",
        ),
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
            [[[1]], [[2], [3]]],
            takes("f4", None, 1),
            "instances[1]: expected 1 values, given 2; a row has shape (any, 1)",
            id="ragged around what is even",
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
        pytest.param(
            f"[{2.0**62:f}]",
            takes("i1"),
            "[0]: expected int8, given 4.611686018427388e+18",
            id="a large float",
        ),
        pytest.param(
            f"[{2.0**63:f}]",
            takes("u8"),
            "[0]: expected uint64, given 9.223372036854776e+18",
            id="a float in uint64's range",
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
            [-(2**63), -(2**63) - 1],
            takes("i8"),
            "instances[1]: -9.223372036854776e+18 is out of range for int64",
            id="below int64",
        ),
        pytest.param(
            [0, 2**64],
            takes("u8"),
            "instances[1]: 1.8446744073709552e+19 is out of range for uint64",
            id="uint64",
        ),
        pytest.param(
            [-(2**65)],
            takes("i4"),
            "instances[0]: -3.6893488147419103e+19 is out of range for int32",
            id="beyond all integers",
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
@pytest.mark.parametrize("extra", [{}, {"x": [True]}], ids=["at once", "with a search"])
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
        text.startswith("JSON Parse error: ")
    )


def test_string_among_many():
    """A long string costs no more than itself, however many values stand beside it."""
    # NumPy alone would take 80 MB: the string's length for each of the values.
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


def strings(*values) -> np.ndarray:
    return np.array(values, object)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        pytest.param(
            {"y": strings(b"a", "ü".encode(), b"")},
            '{"predictions":["a","ü",""]}',
            id="strings",
        ),
        pytest.param(
            {"y_bytes": strings([b"a", b"\xff"])},
            '{"predictions":[[{"b64":"YQ=="},{"b64":"/w=="}]]}',
            id="bytes by name",
        ),
        pytest.param(
            {"y": strings(b"a", b"\xff")},
            '{"predictions":["a",{"b64":"/w=="}]}',
            id="bytes that are no text",
        ),
        pytest.param(
            {"y": strings([b"a"], [b"b"]), "z_bytes": strings(b"c", b"d")},
            '{"predictions":[{"y":["a"],"z_bytes":{"b64":"Yw=="}},'
            '{"y":["b"],"z_bytes":{"b64":"ZA=="}}]}',
            id="several of strings",
        ),
        pytest.param(
            {"y": strings(b"a"), "z": np.array([np.nan])},
            '{"predictions":[{"y":"a","z":NaN}]}',
            id="strings beside NaN",
        ),
        pytest.param(
            {"y_bytes": np.array([1.5], "f4")},
            '{"predictions":[1.5]}',
            id="numbers whose name ends in _bytes",
        ),
        pytest.param(
            {"y": np.array([0.2, 1], "f4")}, '{"predictions":[0.2,1.0]}', id="scalars"
        ),
        pytest.param(
            {"y": np.array([0.1, 6e-8, 1 / 3], "f2")},
            '{"predictions":[0.1,6e-8,0.3333]}',
            id="half precision",
        ),
        pytest.param(
            {"y": np.array([0.1, np.nan], "f2"), "z": np.array([0.1, 0.2], "f4")},
            '{"predictions":[{"y":0.1,"z":0.1},{"y":NaN,"z":0.2}]}',
            id="half precision beside single, not finite",
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


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [0.1, np.nan])
def test_no_float_takes_long_to_write(dtype, value):
    """Halves and NaN take about the time of other floats, and not tens of times it."""

    def seconds(array):
        began_at = time.thread_time()
        rows.encode({"y": array})
        return time.thread_time() - began_at

    plain = np.random.default_rng(1).random(1 << 14, np.float32)
    odd = plain.astype(dtype)
    odd[0] = value
    both = [(seconds(odd), seconds(plain)) for _ in range(5)]
    least_s, usual_s = map(min, zip(*both, strict=True))
    assert least_s < 10 * usual_s


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        pytest.param(
            {"y": np.array([[1, 2]], "f4")}, '{"outputs":[[1.0,2.0]]}', id="one"
        ),
        pytest.param(
            {"y": np.array([1, 2], "i4"), "z_bytes": strings(b"a", b"b")},
            '{"outputs":{"y":[1,2],"z_bytes":[{"b64":"YQ=="},{"b64":"Yg=="}]}}',
            id="several",
        ),
        pytest.param(
            {"y": np.array([0.1, np.inf], "f4"), "z": strings(b"a", b"b")},
            '{"outputs":{"y":[0.1,Infinity],"z":["a","b"]}}',
            id="not finite",
        ),
    ],
)
def test_encode_columns(outputs, text):
    """What was asked in columns is answered in columns."""
    assert rows.encode(outputs, columnar=True).decode() == text


@pytest.mark.parametrize(("form", "columnar"), [("instances", False), ("inputs", True)])
def test_the_form_of_the_request_is_kept(form, columnar):
    """A decoded request knows in which form its answer is to be."""
    body = json.dumps({form: [1]}).encode()
    signatures = {DEFAULT_SIGNATURE: takes("f4")}
    assert rows.decode(body, signatures).columnar is columnar
