"""JSON rows to arrays and back: what is accepted, what is refused, and the texts."""

import itertools
import json
import sys
import time
import tracemalloc

import numpy as np
import pytest

from app.codec import nested, rows
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, Unsupported
from tests.support.cases import case
from tests.support.signatures import takes, takes_several

F4, F4_ANY, F4_2 = takes("f4"), takes("f4", None), takes("f4", 2)
F4_2_2, F4_ANY_ANY, F4_ANY_1 = (
    takes("f4", 2, 2),
    takes("f4", None, None),
    takes("f4", None, 1),
)
STRING, STRING_ANY, STRING_2 = takes("O"), takes("O", None), takes("O", 2)
I1, I4, I8, U8, BOOL = takes("i1"), takes("i4"), takes("i8"), takes("u8"), takes("?")
SEVERAL = takes_several(a=("f4", 2), b=("i4",), c=("O",))
PAIR = takes_several(a=("f4",), b=("i4",))


def inputs(body: bytes, signature):
    return rows.decode(body, {DEFAULT_SIGNATURE: signature}).inputs


def decoded(text: str, signature):
    (array,) = inputs(text.encode(), signature).values()
    return array


def instances(*values) -> bytes:
    return json.dumps({"instances": values}).encode()


def refusal(body: bytes | str, signature) -> str:
    body = body.encode() if isinstance(body, str) else body
    with pytest.raises(BadInput) as raised:
        inputs(body, signature)
    # What a row looks like has tests of its own.
    return str(raised.value).partition("; a row has shape")[0]


# Rows that fit.

FORMS = '{{"instances": {}{}}}', '{{"inputs": {}{}}}', '{{"inputs": {{"x": {}}}{}}}'
EXTRAS = "", ', "signature_name": "serving_default"', ', "x": [true]', ', "x": ["y"]'


@pytest.mark.parametrize(
    ("text", "signature", "expected"),
    [
        pytest.param("[[1, 2.5], [3, 4]]", F4_2, [[1, 2.5], [3, 4]], id="2d"),
        pytest.param("[1, 2]", F4, [1, 2], id="scalars"),
        pytest.param("[[[1], [2]]]", takes("i4", 2, 1), [[[1], [2]]], id="3d"),
        pytest.param("[[1, 2, 3]]", F4_ANY, [[1, 2, 3]], id="free size"),
        pytest.param("[[], []]", takes("i4", None), [[], []], id="free size of zero"),
        pytest.param("[true, false]", BOOL, [True, False], id="bools"),
        pytest.param("[-128, 127]", I1, [-128, 127], id="ends of int8"),
        pytest.param(f"[0, {2**64 - 1}]", U8, [0, 2**64 - 1], id="uint64"),
        pytest.param(f"[-1, {2**63}]", takes("f8"), [-1, 2**63], id="wide mix"),
        pytest.param("[1e-50]", F4, [0], id="too small is zero"),
        pytest.param("[NaN]", F4, [np.nan], id="NaN"),
        pytest.param("[-Infinity]", F4, [-np.inf], id="infinity"),
        pytest.param("[Inf, -Inf]", F4, [np.inf, -np.inf], id="Inf"),
        pytest.param("[0.1, 65504]", takes("f2"), [0.1, 65504], id="float16"),
        pytest.param('["a", "ü"]', STRING, [b"a", "ü".encode()], id="strings"),
        pytest.param('[["a", ""]]', STRING_2, [[b"a", b""]], id="string rows"),
        pytest.param("[[], []]", STRING_ANY, [[], []], id="rows of no strings"),
        pytest.param(
            '[{"b64": "/w=="}, "b64", {"b64": ""}]',
            STRING,
            [b"\xff", b"b64", b""],
            id="base64 among strings",
        ),
        pytest.param(
            '[[["a"], [{"b64": "AAE="}]]]',
            takes("O", 2, 1),
            [[[b"a"], [b"\0\1"]]],
            id="base64 deep inside",
        ),
        pytest.param('["true", "NaN"]', STRING, [b"true", b"NaN"], id="words"),
        pytest.param(
            f"[{'9' * 300}, NaN]", takes("f8"), [1e300, np.nan], id="300 digits"
        ),
    ],
)
def test_decode_rows_that_fit(text, signature, expected):
    """Rows that fit become one array of the input's dtype, in every form."""
    wanted = np.array(expected, signature.inputs[0].dtype)
    for form, extra in itertools.product(FORMS, EXTRAS):
        body = form.format(text, extra)
        with case(body):
            np.testing.assert_array_equal(decoded(body, signature), wanted, strict=True)


@pytest.mark.parametrize(
    ("text", "signature", "expected"),
    [
        ('[{"x": 1}, {"x": 2}]', F4, [1, 2]),
        ('[{"x": "a"}, {"x": {"b64": "Yg=="}}]', STRING, [b"a", b"b"]),
        ('[{"b64": 1}]', takes_several(b64=("f4",)), [1]),
        ('[{"b64": "Yg=="}]', takes_several(b64=("O",)), [b"b"]),
    ],
    ids=["numbers", "base64", "an input called b64", "a b64 object is a value"],
)
def test_decode_named_rows(text, signature, expected):
    """Rows of one input may be objects by its name; a b64 object is a value."""
    assert decoded(f'{{"instances": {text}}}', signature).tolist() == expected


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [{"a": [1, 2], "b": 3, "c": "x"},'
        ' {"b": 4, "c": {"b64": "AA=="}, "a": [5, 6]}]}',
        '{"inputs": {"c": ["x", {"b64": "AA=="}], "other": 1, "b": [3, 4],'
        ' "a": [[1, 2], [5, 6]]}}',
    ],
    ids=["rows", "columns"],
)
def test_decode_several_inputs(body):
    """Several inputs are objects with keys in any order; other columns are ignored."""
    arrays = inputs(body.encode(), SEVERAL)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "a": [[1, 2], [5, 6]],
        "b": [3, 4],
        "c": [b"x", b"\0"],
    }


@pytest.mark.parametrize(
    "text", ["AAECAw", "AAEC\\nAw==", " AAEC Aw ", "AAECAw=="], ids=repr
)
def test_base64_with_blanks_or_without_padding(text):
    """Blanks in base64, and missing padding, are accepted as in TensorFlow Serving."""
    array = decoded(f'{{"instances": [{{"b64": "{text}"}}]}}', STRING)
    assert array.tolist() == [bytes(range(4))]


@pytest.mark.parametrize("behind", [b"}", b" and more", b'{"instances": []}', b"\0"])
def test_text_behind_the_object_is_ignored(behind):
    """With TensorFlow Serving a request ends where its object ends."""
    body, signatures = b'{"instances": [1, 2]}' + behind, {DEFAULT_SIGNATURE: F4}
    request = rows.decode(body, signatures, ignore_tail=True)
    assert request.inputs["x"].tolist() == [1, 2]
    with pytest.raises(BadInput, match="text follows the value"):
        rows.decode(body, signatures)


@pytest.mark.parametrize("beside", ["0", "NaN"])
@pytest.mark.parametrize(("dtype", "digits"), [("f4", 25), ("f8", 25), ("f8", 300)])
def test_integer_of_many_digits_is_a_float(dtype, digits, beside):
    """An integer of many digits is a float, if the float can hold it."""
    huge = "7" * digits
    array = decoded(f'{{"instances": [{huge}, {beside}]}}', takes(dtype))
    assert array[0] == np.dtype(dtype).type(float(huge))


@pytest.mark.parametrize(("form", "columnar"), [("instances", False), ("inputs", True)])
def test_request_keeps_its_form(form, columnar):
    """A decoded request says whether the response has columns."""
    body = json.dumps({form: [1]}).encode()
    assert rows.decode(body, {DEFAULT_SIGNATURE: F4}).form.columnar is columnar


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        (b'{"instances": [[1, 2], [3, 4]]}', F4_2),
        (b'{"instances": [1], "signature_name": "serving_default"}', F4),
        (b'{"instances": [{"x": [1]}, {"x": [2]}]}', takes("f4", 1)),
        (b'{"inputs": [[1], [2]]}', takes("f4", 1)),
        (b'{"inputs": {"x": [[1], [2]]}}', takes("f4", 1)),
        (b'{"instances": ["true", {"b64": "AA=="}]}', STRING),
        (b'{"inputs": {"x": [["true"], [{"b64": "AA=="}]]}}', takes("O", 1)),
    ],
)
def test_rows_are_read_at_once(monkeypatch, body, signature):
    """Rows that fit are converted without a search through their values."""
    monkeypatch.setattr(nested, "check_json_dtype", None)
    monkeypatch.setattr(nested, "check_row", None)
    inputs(body, signature)


# Signatures and dtypes.

TWO_SIGNATURES = {"serving_default": F4, "other": takes("i4", 1)}


@pytest.mark.parametrize("name", ["serving_default", "other", ""])
def test_signature_name_chooses_the_signature(name):
    """The values are read for the named signature; an empty name is the default."""
    chosen = name or "serving_default"
    value = [1] if chosen == "other" else 1
    body = json.dumps({"signature_name": name, "instances": [value]}).encode()
    request = rows.decode(body, TWO_SIGNATURES)
    assert request.signature_name == chosen
    assert request.inputs["x"].dtype == TWO_SIGNATURES[chosen].inputs[0].dtype


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (1, "'signature_name' key must be a string value."),
        (None, "'signature_name' key must be a string value."),
        ("x" * 99, f'Serving signature name: "{"x" * 80}" not found in signature def'),
    ],
    ids=["number", "null", "unknown"],
)
def test_invalid_signature_name_is_refused(name, text):
    """A signature_name that is not a string, or not the model's, is refused."""
    body = json.dumps({"signature_name": name, "instances": [1]}).encode()
    with pytest.raises(BadInput) as raised:
        rows.decode(body, TWO_SIGNATURES)
    assert str(raised.value) == text


def test_model_without_a_default_signature():
    """For a model without serving_default a request must name a signature."""
    with pytest.raises(BadInput, match='"serving_default" not found'):
        rows.decode(instances(1), {"other": F4})


@pytest.mark.parametrize("dtype", ["c8", "c16", "V2"])
def test_dtype_without_json_values_is_unsupported(dtype):
    """A dtype for which JSON has no values is a 501, both ways."""
    with pytest.raises(Unsupported, match=r"^x: .* has no form in JSON$"):
        inputs(instances(1), takes(dtype))
    with pytest.raises(Unsupported, match=r"^y: .* has no form in JSON$"):
        rows.encode({"y": np.zeros(1, dtype)})


# Refusals.


@pytest.mark.parametrize(
    ("values", "signature", "text"),
    [
        # Shapes.
        (
            "[[1, 2], [3]]",
            F4_2,
            "[1]: expected 2 values, given 1",
        ),
        (
            "[[[1, 2], [3]]]",
            F4_2_2,
            "[0][1]: expected 2 values, given 1",
        ),
        (
            "[[1], [2, 3]]",
            F4_ANY,
            "[1]: expected 1 values, given 2",
        ),
        (
            "[[[1], [2, 3]]]",
            F4_ANY_ANY,
            "[0][1]: expected 1 values, given 2",
        ),
        (
            "[[[1]], [[2], [3]]]",
            F4_ANY_1,
            "[1]: expected 1 values, given 2",
        ),
        ("[[1, 2, 3]]", F4_2, "[0]: expected 2 values, given 3"),
        ("[1]", F4_2, "[0]: expected a list, given 1"),
        ("[[1, [2, 3]]]", F4_2, "[0][1]: expected float32, given a list of 2"),
        ("[[], []]", takes("f4", None, 3), "[0]: expected shape (any, 3), given (0,)"),
        ("[[], []]", F4_ANY_ANY, "[0]: expected shape (any, any), given (0,)"),
        # Types.
        ("[1, 2.5]", I4, "[1]: expected int32, given 2.5"),
        ("[1.0]", I4, "[0]: expected int32, given 1.0"),
        ("[1e3]", takes("u1"), "[0]: expected uint8, given 1000.0"),
        ("[NaN]", I4, "[0]: expected int32, given NaN"),
        ("[1, Infinity]", I8, "[1]: expected int64, given Infinity"),
        ("[true, 1]", BOOL, "[1]: expected bool, given 1"),
        ("[0]", BOOL, "[0]: expected bool, given 0"),
        ("[true]", I1, "[0]: expected int8, given true"),
        ("[null]", takes("f8"), "[0]: expected float64, given null"),
        (f"[{2.0**62:f}]", I1, "[0]: expected int8, given 4.611686018427388e+18"),
        (f"[{2.0**63:f}]", U8, "[0]: expected uint64, given 9.223372036854776e+18"),
        # Ranges.
        ("[[0, 128]]", takes("i1", 2), "[0][1]: 128 is out of range for int8"),
        ("[5, -1]", takes("u4"), "[1]: -1 is out of range for uint32"),
        (f"[-1, {2**64 - 1}]", U8, "[0]: -1 is out of range for uint64"),
        (f"[{2**63}]", I8, f"[0]: {2**63} is out of range for int64"),
        (
            f"[{-(2**63)}, {-(2**63) - 1}]",
            I8,
            "[1]: -9.223372036854776e+18 is out of range for int64",
        ),
        (f"[0, {2**64}]", U8, "[1]: 1.8446744073709552e+19 is out of range for uint64"),
        (f"[{-(2**65)}]", I4, "[0]: -3.6893488147419103e+19 is out of range for int32"),
        ("[[0.0, -1e39]]", F4_2, "[0][1]: -1e+39 is out of range for float32"),
        (f"[0, {10**39}]", F4, "[1]: 1e+39 is out of range for float32"),
        ("[7e4]", takes("f2"), "[0]: 70000.0 is out of range for float16"),
        # Strings.
        ("[1]", STRING, "[0]: expected string, given 1"),
        ("[true]", STRING, "[0]: expected string, given true"),
        ("[null]", STRING, "[0]: expected string, given null"),
        ('["a", ["b"]]', STRING, "[1]: expected string, given a list of 1"),
        ('[["a"], "b"]', takes("O", 1), "[1]: expected a list, given the string 'b'"),
        (
            '[["a", "b", "c"]]',
            STRING_2,
            "[0]: expected 2 values, given 3",
        ),
        (
            '[["a"], ["b", "c"]]',
            STRING_ANY,
            "[1]: expected 1 values, given 2",
        ),
        # Base64.
        (
            '[["a", {"b64": "AA==", "x": 1}]]',
            STRING_2,
            "[0][1]: expected string, given an object",
        ),
        ('[["a", {"b64": 1}]]', STRING_2, "[0][1]: expected string, given an object"),
        ('["a", {"b64": "?"}]', STRING, "[1]: not base64: "),
        ('[{"b64": "AAAA="}]', STRING, "[0]: not base64: "),
        ('[{"b64": "AA==AA=="}]', STRING, "[0]: not base64: "),
        ('[{"b64": "ü"}]', STRING, "[0]: not base64: "),
        ('[{"b64": "-_-_"}]', STRING, "[0]: not base64: "),
        ('[1, {"b64": "AA=="}]', F4, "[1]: expected float32, given an object"),
    ],
)
def test_value_that_does_not_fit_is_refused(values, signature, text):
    """A wrong shape, type or range is refused with its place, in every form."""
    for form, extra in itertools.product(("instances", "inputs"), EXTRAS[::2]):
        body = f'{{"{form}": {values}{extra}}}'
        with case(body):
            refused = refusal(body, signature)
            assert refused == form + text or (
                text.endswith("base64: ") and refused.startswith(form + text)
            )


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        (True, "true"),
        (None, "null"),
        ("7", "the string '7'"),
        ("x" * 99, f"the string '{'x' * 40}'"),
        ({"b64": "AA"}, "an object"),
        ([], "a list of 0"),
    ],
    ids=["bool", "null", "string", "long string", "object", "empty list"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_odd_value_among_numbers_is_refused(odd, shown, place):
    """A value that is not a number is named with its place, and not converted."""
    row: list[object] = [1, 2.5, 3]
    row[place] = odd
    assert refusal(instances([0, 0, 0], row), takes("f4", 3)) == (
        f"instances[1][{place}]: expected float32, given {shown}"
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "JSON Parse error: The document is empty"),
        ("{", "JSON Parse error: Expecting"),
        ("[[1]]", "expected a JSON object: "),
        ("null", "expected a JSON object: "),
        ('{"rows": 1}', "Missing 'inputs' or 'instances' key"),
        (
            '{"inputs": [1], "instances": [1]}',
            "expected only one of 'inputs' or 'instances', given both",
        ),
        *(
            (
                f'{{"instances": {value}}}',
                "'instances' must be a list/array with at least one row",
            )
            for value in ("[]", "5", '{"0": 1}', '"ab"', "null")
        ),
        *(
            (f'{{"inputs": {value}}}', "inputs: expected a list with at least one row")
            for value in ("[]", "5", '{"b64": "AA=="}', '"ab"', "null")
        ),
        ('{"inputs": {"x": 1}}', "inputs.x: expected a list with at least one row"),
        ('{"inputs": {"y": [1]}}', "Missing named input: x in 'inputs' object."),
        ('{"instances": [{"x": 1}, 2]}', "instances[1]: expected an object with x"),
        ('{"instances": [{"y": 1}]}', "instances[0]: keys must be equal to x, given y"),
    ],
)
def test_body_without_rows_is_refused(body, text):
    """A body without a list of rows is refused with what was expected."""
    assert refusal(body, F4).startswith(text)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("[[1, 2]]", "inputs: expected an object with a, b, c"),
        ('{"b64": "AA=="}', "inputs: expected an object with a, b, c"),
        ('{"a": [[1, 2]], "b": [1]}', "Missing named input: c in 'inputs' object."),
        (
            '{"a": [[1, 2]], "b": 1, "c": ["x"]}',
            "inputs.b: expected a list with at least one row",
        ),
        (
            '{"a": [[1, 2]], "b": [1], "c": ["x", "y"]}',
            "inputs.b has 1 rows and inputs.c 2; rows run in batches, so the first "
            "dimensions must be equal",
        ),
        (
            '{"a": [[1, 2], [3]], "b": [1, 2], "c": ["x", "y"]}',
            "inputs.a[1]: expected 2 values, given 1",
        ),
        (
            '{"a": [[1, 2], [3, "4"]], "b": [1, 2], "c": ["x", "y"]}',
            "inputs.a[1][1]: expected float32, given the string '4'",
        ),
        (
            '{"a": [[1, 2]], "b": [2147483648], "c": ["x"]}',
            "inputs.b[0]: 2147483648 is out of range for int32",
        ),
    ],
)
def test_column_that_does_not_fit_is_refused(columns, text):
    """A column of several inputs is refused by its name, with the place in it."""
    assert refusal(f'{{"inputs": {columns}}}', SEVERAL) == text


LONG_KEYS = {str(n) * 50: n for n in range(10)}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([{"a": 1, "b": 2}, {"a": 1}], "[1]: keys must be equal to a, b, given a"),
        ([{"a": 1, "b": 2, "c": 3}], "[0]: keys must be equal to a, b, given a, b, c"),
        ([{}], "[0]: keys must be equal to a, b, given none"),
        (
            [LONG_KEYS],
            "[0]: keys must be equal to a, b, given "
            + ", ".join(str(n) * 40 for n in range(8))
            + ", ...",
        ),
        ([1, 2], "[0]: expected an object with a, b"),
        ([{"a": 1, "b": 2}, [1, 2]], "[1]: expected an object with a, b"),
        (
            [{"a": 1, "b": 2}, {"a": 1, "b": [2]}],
            "[1].b: expected int32, given a list of 1",
        ),
        (
            [{"a": 1, "b": 2}, {"a": "1", "b": 2}],
            "[1].a: expected float32, given the string '1'",
        ),
        ([{"a": 1, "b": 2**31}], f"[0].b: {2**31} is out of range for int32"),
    ],
)
def test_row_of_several_inputs_that_does_not_fit_is_refused(values, text):
    """With several inputs a refusal names the row, and its key."""
    assert refusal(instances(*values), PAIR) == f"instances{text}"


def test_key_of_half_a_surrogate_pair_is_refused():
    """The text of the refusal can be encoded, so that a response can carry it."""
    refusal('{"instances": [{"\\ud800": NaN}]}', PAIR).encode()


@pytest.mark.parametrize("beside", ["0", "NaN"])
@pytest.mark.parametrize(
    ("dtypes", "digits"), [("i8 u8", 25), ("i8 u8", 300), ("i8 u8 f4 f8", 310)]
)
def test_integer_of_too_many_digits_is_refused(dtypes, digits, beside):
    """It is refused in a short text, and never becomes infinity."""
    for dtype in dtypes.split():
        for count in (digits, 4000, 9000):
            body = f'{{"instances": [{"7" * count}, {beside}]}}'
            text = refusal(body, takes(dtype))
            assert len(text) < 400
            if beside == "0" or "f" in dtype:
                assert count < 310 or "is infinity when parsed as double" in text


@pytest.mark.parametrize("token", ["1", "NaN"])
@pytest.mark.parametrize("depth", [10, 100, 900, 50_000])
def test_deep_nesting_is_refused(token, depth):
    """Thousands of brackets are a bad input, not a crash."""
    nest = "[" * depth + token + "]" * depth
    text = refusal(f'{{"instances": [{nest}]}}', takes("f4", 1))
    assert text == "instances[0][0]: expected float32, given a list of 1" or (
        text.startswith("JSON Parse error: ")
    )


# Time and memory.


@pytest.mark.parametrize(
    ("body", "signature", "problem"),
    [
        pytest.param(
            b'{"instances": [%strue]}' % (b"1," * 9999),
            F4,
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
            "instances[9999][1]: expected 2 values, given 1",
            id="uneven",
        ),
    ],
)
def test_odd_value_is_found_by_bisection(body, signature, problem):
    """The search calls far fewer functions than there are values."""
    calls = []
    sys.setprofile(
        lambda frame, event, _: event == "call" and calls.append(frame.f_code)
    )
    try:
        with pytest.raises(BadInput) as raised:
            inputs(body, signature)
    finally:
        sys.setprofile(None)
    assert str(raised.value).startswith(problem)
    assert len(calls) < 1000


def test_long_string_among_many_values_takes_little_memory():
    """A string instead of a number is not copied for each value."""
    # NumPy alone would take 80 MB: the string's length for each of the values.
    body = instances("x" * 4000, *[""] * 5000)
    tracemalloc.start()
    try:
        text = refusal(body, F4)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text.startswith("instances[0]: expected float32, given the string 'xxx")
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [0.1, np.nan])
def test_float16_and_nan_are_written_as_fast_as_other_floats(dtype, value):
    """They take less than ten times the time of other floats."""

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


# Responses.


def strings(*values) -> np.ndarray:
    return np.array(values, object)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"y": strings(b"a", "ü".encode(), b"")}, '["a","ü",""]'),
        ({"y_bytes": strings([b"a", b"\xff"])}, '[[{"b64":"YQ=="},{"b64":"/w=="}]]'),
        ({"y": strings(b"a", b"\xff")}, '["a",{"b64":"/w=="}]'),
        (
            {"y": strings([b"a"], [b"b"]), "z_bytes": strings(b"c", b"d")},
            '[{"y":["a"],"z_bytes":{"b64":"Yw=="}},'
            '{"y":["b"],"z_bytes":{"b64":"ZA=="}}]',
        ),
        ({"y": strings(b"a"), "z": np.array([np.nan])}, '[{"y":"a","z":NaN}]'),
        ({"y_bytes": np.array([1.5], "f4")}, "[1.5]"),
        ({"y": np.array([0.2, 1], "f4")}, "[0.2,1.0]"),
        ({"y": np.array([0.1, 6e-8, 1 / 3], "f2")}, "[0.1,6e-8,0.3333]"),
        (
            {"y": np.array([0.1, np.nan], "f2"), "z": np.array([0.1, 0.2], "f4")},
            '[{"y":0.1,"z":0.1},{"y":NaN,"z":0.2}]',
        ),
        ({"y": np.array([[1, 2]], "i8")}, "[[1,2]]"),
        (
            {"y": np.array([[0.1, np.nan], [np.inf, -np.inf]], "f4")},
            "[[0.1,NaN],[Infinity,-Infinity]]",
        ),
        (
            {"y": np.array([[0.2]], "f4"), "z": np.array([True])},
            '[{"y":[0.2],"z":true}]',
        ),
        (
            {"y": np.array([0.2, np.nan], "f4"), "z": np.array([7, 8], "u1")},
            '[{"y":0.2,"z":7},{"y":NaN,"z":8}]',
        ),
        ({"y": np.array([[1, 2], [3, 4]], "f4").T}, "[[1.0,3.0],[2.0,4.0]]"),
    ],
    ids=[
        *("strings", "base64 by name", "base64 for what is not UTF-8"),
        *("several of strings", "strings beside NaN", "numbers of a _bytes output"),
        *("scalars", "float16", "float16 beside float32, NaN", "list", "not finite"),
        *("several", "several, not finite", "not contiguous"),
    ],
)
def test_encode_rows(outputs, text):
    """Responses are TensorFlow Serving's row form, with floats in fewest digits."""
    assert rows.encode(outputs).decode() == f'{{"predictions":{text}}}'


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({"y": np.array([[1, 2]], "f4")}, "[[1.0,2.0]]"),
        (
            {"y": np.array([1, 2], "i4"), "z_bytes": strings(b"a", b"b")},
            '{"y":[1,2],"z_bytes":[{"b64":"YQ=="},{"b64":"Yg=="}]}',
        ),
        (
            {"y": np.array([0.1, np.inf], "f4"), "z": strings(b"a", b"b")},
            '{"y":[0.1,Infinity],"z":["a","b"]}',
        ),
    ],
    ids=["one", "several", "not finite"],
)
def test_encode_columns(outputs, text):
    """A request in columns gets a response in columns."""
    assert (
        rows.encode(outputs, rows.Form(columnar=True)).decode()
        == f'{{"outputs":{text}}}'
    )
