"""Large JSON bodies: arrays of numbers are cut out, and the rest has a bound."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codec import json_text, rows
from app.codec.bounds import Bounds
from app.codec.json_arrays.split import Numbers, split
from app.codec.v2 import tensors
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import BadInput, Late, TooLarge
from tests.support.signatures import takes

# Long enough to be cut out.
ROW = [round(0.5 + place, 1) for place in range(100)]
LONG = json.dumps(ROW)
TWO_INPUTS = Signature(
    (
        TensorSpec("a", np.dtype("f4"), (100,)),
        TensorSpec("b", np.dtype("i4"), ()),
    ),
    (TensorSpec("y", np.dtype("f4"), ()),),
)
leaves = st.text(max_size=5) | st.integers(-9, 9) | st.just(ROW) | st.just([ROW, ROW])
values = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)


def unchecked():
    """Never raise."""


def parts_of(text, most=10_000, check=unchecked):
    return split(text.encode(), most, check)


def with_arrays(value):
    """Return a value with each `Numbers` parsed."""
    if isinstance(value, Numbers):
        return json.loads(value.body[value.begin : value.end])
    if isinstance(value, dict):
        return {key: with_arrays(inner) for key, inner in value.items()}
    return [*map(with_arrays, value)] if isinstance(value, list) else value


def padded(payload):
    """Return a body that is large enough to be split in any case."""
    return json.dumps(payload).encode().ljust((1 << 20) + 1)


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_split_and_parsed_text_is_the_value(value, indent, ascii_only):
    """What is cut out is put back at its key, whatever stands around it."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    parts = parts_of(text)
    assert with_arrays(parts.restored(json_text.loads(parts.text))) == value


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f'{{"a": {LONG}}}', 1),
        (f'{{"a": {LONG}, "b": [{LONG},{LONG}]\n, "c": 5}}', 2),
        (f'[{{"a": {LONG}}}, {{"a":{LONG} }}]', 2),
        # A string, and an array that is not the value of a key.
        (f'{{"a": "\\": {LONG}"}}', 0),
        (f"[{LONG}]", 0),
        # Too short, without a value, or with a string or an object in it.
        ('{"a": [1, 2]}', 0),
        (f'{{"a": [{"[], " * 99}[]]}}', 0),
        (f'{{"a": [{LONG}, "b"]}}', 0),
    ],
)
def test_long_arrays_of_numbers_are_cut_out(text, count):
    """Only values of keys that are long and have nothing but numbers stay text."""
    parts = parts_of(text)
    assert len(re.findall(rb'"[0-9a-f]{16}\d+"', parts.text)) == count
    assert (parts.text == text.encode()) == (count == 0)


@pytest.mark.parametrize(
    "part", ['"",', "{},", "[],", "1,", '"\\"",', '"\\\\",', "[[[[[[[[[", '"\\""']
)
def test_text_of_many_parts_is_not_split(part):
    """Strings, objects, and lists and commas outside of the arrays are counted."""
    text = f'{{"a": "", "b": ["", {part * 1000}'
    assert parts_of(text, most=900) is None
    assert parts_of(text, most=10_000) is not None


@pytest.mark.parametrize("inner", ["x" * 9, "\\n" * 9, '\\"' * 9, "\\\\" * 9, "\\"])
def test_strings_are_passed_in_windows(inner, monkeypatch):
    """The end of a string is found, wherever a window ends; open strings end it."""
    monkeypatch.setattr("app.codec.json_arrays.split._WINDOW_BYTES", 4)
    text = f'{{"s": "{inner}", "a": {LONG}}}'
    cut_out = len(parts_of(text).text) < len(text)
    assert cut_out == (inner != "\\")


def test_check_is_called_while_text_is_split():
    """A client that disconnects stops the search for arrays."""
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 3:
            raise Late("late")

    with pytest.raises(Late):
        parts_of('"",' * 100_000, most=1_000_000, check=check)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (f'{{"a": {LONG}, "b": x}}', len(LONG) + 13),
        (f'{{x, "a": {LONG}}}', 1),
        (f'\ufeff{{"{"é" * 300}": {LONG}, "b": x}}', len(LONG) + 312),
        (f'{{"a": {LONG}, "b": [Inf, -Inf], "c": "Inf", "d": x}}', len(LONG) + 43),
    ],
)
def test_parse_error_names_the_place_in_the_body(text, offset):
    """The arrays that are cut out count in an offset behind them."""
    with (
        pytest.raises(BadInput, match=rf"offset: {offset}$"),
        json_text.opened(text.encode().ljust((1 << 20) + 1)),
    ):
        pass


def test_body_of_too_many_parts_is_refused(monkeypatch):
    """A large body may have so many parts beside its numbers, a small one any."""
    monkeypatch.setattr(json_text, "_MAX_PARTS", 100)
    payload = {"instances": [{"a": ROW, "b": 1}] * 40}
    signatures = {DEFAULT_SIGNATURE: TWO_INPUTS}
    assert len(rows.decode(json.dumps(payload).encode(), signatures).inputs["b"]) == 40
    with pytest.raises(TooLarge, match="more than 100 strings, objects and lists"):
        rows.decode(padded(payload), signatures)


@pytest.mark.parametrize(
    "payload",
    [
        {"instances": [ROW, ROW]},
        {"instances": [{"x": ROW}, {"x": ROW}]},
        {"inputs": [ROW, ROW]},
        {"inputs": {"x": [ROW, ROW]}, "signature_name": DEFAULT_SIGNATURE},
    ],
)
def test_large_bodies_of_all_forms_become_arrays(payload):
    """Rows, rows with names, and columns give the same array."""
    signatures = {DEFAULT_SIGNATURE: takes("f4", 100)}
    request = rows.decode(padded(payload), signatures)
    wanted = np.array([ROW, ROW], "f4")
    np.testing.assert_array_equal(request.inputs["x"], wanted, strict=True)


def test_rows_with_short_and_long_lists():
    """Lists that stayed text and those that became objects may stand side by side."""
    signature = takes("f4", None, 2)
    long = [[place, 0.5] for place in range(100)]
    payload = {"instances": [{"x": long}, {"x": [[1, 2]] * 100}]}
    read = rows.decode(padded(payload), {DEFAULT_SIGNATURE: signature}).inputs["x"]
    np.testing.assert_array_equal(read, np.array([long, [[1, 2]] * 100], "f4"))
    payload["instances"].append({"x": [[1, 2]]})
    with pytest.raises(
        BadInput, match=r"instances\[2\].x: expected 100 values, given 1"
    ):
        rows.decode(padded(payload), {DEFAULT_SIGNATURE: signature})


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({"instances": [ROW]}, "instances[0]: expected an object with a, b"),
        (
            {"instances": [{"a": ROW, "b": ROW}]},
            "instances[0].b: expected int32, given a list",
        ),
        (
            {"instances": [{"a": ROW[1:], "b": 1}]},
            "instances[0].a: expected 100 values, given 99",
        ),
        (
            {"instances": [{"a": [ROW], "b": 1}]},
            "instances[0].a[0]: expected float32, given a list",
        ),
        ({"inputs": {"a": [ROW], "b": [1, 2]}}, "inputs.a has 1 rows and inputs.b 2"),
        ({"inputs": {"a": ROW, "b": [1]}}, "inputs.a[0]: expected a list, given 0.5"),
        ({"inputs": ROW}, "inputs: expected an object with a, b"),
    ],
)
def test_odd_arrays_of_a_large_body_are_named(payload, problem):
    """The refusal is that of a small body."""
    with pytest.raises(BadInput) as raised:
        rows.decode(padded(payload), {DEFAULT_SIGNATURE: TWO_INPUTS})
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([1, ROW], "[1].x: expected int32, given a list; a row has shape ()"),
        ([1, "a", ROW], "[1].x: expected int32, given the string 'a'"),
        ([1, 2**40, ROW], "[1].x: 1099511627776 is out of range for int32"),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_single_values_beside_a_long_list_are_refused(shape, given, problem):
    """An error names the first row that is not a single value."""
    payload = {"instances": [{"x": row} for row in given]}
    with pytest.raises(BadInput) as raised:
        rows.decode(padded(payload), {DEFAULT_SIGNATURE: takes("i4", *shape)})
    assert str(raised.value).startswith(f"instances{problem}")


def test_long_blanks_in_a_row_are_no_part_of_the_next():
    """A row that is one piece of text ends where its array ends."""
    body = b'{"instances": [{"x": [%s7]}, {"x": [8]}]}' % (b" " * 70_000)
    read = rows.decode(body, {DEFAULT_SIGNATURE: takes("f4", 1)}).inputs["x"]
    assert read.tolist() == [[7], [8]]


@pytest.mark.parametrize(
    ("data", "shape", "problem"),
    [
        ([ROW, ROW], [2, 100], None),
        (ROW * 2, [2, 100], None),
        (ROW, [2, 100], "input 'x': data: shape [2, 100] is 200 values, given 100"),
        (
            ROW * 3,
            [2, 100],
            "input 'x': data: shape [2, 100] is 200 values, given more",
        ),
        ([[[ROW]]], [1, 100], "input 'x': data: nested deeper than its shape [1, 100]"),
        (
            [*ROW, "a"],
            [1, 100],
            "input 'x': data[100]: expected float32, given the string 'a'",
        ),
    ],
)
def test_large_tensors_become_arrays(data, shape, problem):
    """In the Open Inference Protocol the shape decides how many values are read."""
    tensor = {"name": "x", "datatype": "FP32", "shape": shape, "data": data}
    signatures = {DEFAULT_SIGNATURE: takes("f4", 100)}
    body = padded({"inputs": [tensor]})
    if problem is None:
        read = tensors.decode(body, None, signatures).inputs["x"]
        np.testing.assert_array_equal(read, np.array([ROW, ROW], "f4"), strict=True)
    else:
        with pytest.raises(BadInput) as raised:
            tensors.decode(body, None, signatures)
        assert str(raised.value) == problem


def test_tensor_of_more_rows_than_the_queue_holds_is_not_read():
    """The shape says it before a value is parsed."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [9, 1], "data": [0] * 9}
    body = json.dumps({"inputs": [tensor]}).encode()
    signatures = {DEFAULT_SIGNATURE: takes("f4", 1)}
    with pytest.raises(TooLarge, match="9 rows in one request, and the queue holds 8"):
        tensors.decode(body, None, signatures, Bounds(8))
