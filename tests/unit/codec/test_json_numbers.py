"""Rows of floats: simdjson reads them as orjson does, or leaves them to it."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.codec import json_numbers, json_text, nested, rows
from app.engines.base import DEFAULT_SIGNATURE, TensorSpec
from app.errors import BadInput
from testing.clients import in_parallel
from tests.support.signatures import takes

ROWS = b'{"instances": %s}'
PLAIN = b'{"instances": [[1, 2.5], [-3e2, 0.1]]}'
TOKENS = [
    *("0", "-0", "-0.0", "0e9", "7", "-1.5", "1E5", "1.0e+5", "0.1", "16777217"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "18446744073709551615"),
    *("18446744073709551616", "1" * 400, "1e400", "1e-400", "65519", "65520", "1e39"),
    *("3.4028235677973366e38", "3.4028235677973362e38", "1.0000000596046448", "5e-324"),
    *(
        "1e-45",
        "7.0064923216240854e-46",
        "2.9802322387695312e-08",
        "2.98023223876954e-8",
    ),
    *("NaN", "Infinity", "-Inf", "true", "null", '"1"', "{}", "[]", "[1]", "[1, 2]"),
    *("01", "1.", "+1", ".5", "- 1", "1 2", "", "\t3\n", "\u00a01", "\\u0031"),
]
ENDS = ["", " \n", "x", "\0", "}", ', "instances": [[1]]', ', "a": 1']
SPECS = [
    TensorSpec("x", np.dtype(dtype), shape)
    for dtype in ("f2", "f4", "f8")
    for shape in ((), (1,), (2,), (None,), (None, 2))
]
token = st.sampled_from(TOKENS) | st.floats().map(repr) | st.integers().map(str)
number = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr)


def listed(inner):
    return st.lists(inner, max_size=3).map(lambda all_: f"[{', '.join(all_)}]")


nest = st.recursive(token, listed, max_leaves=6)
even = st.one_of(
    listed(
        st.lists(leaf, min_size=2, max_size=2).map(lambda pair: f"[{','.join(pair)}]")
    )
    for leaf in (number, token)
)


def by_orjson(body, spec):
    """Return what is read without simdjson; None: it is refused."""
    try:
        values = json_text.loads(body)["instances"]
        read = nested.read(values, spec, "instances", "", has_bools=True)
    except BadInput:
        return None
    return read if values else None


@given(listed(nest) | even, st.sampled_from(ENDS), st.sampled_from(SPECS))
@example("[[1], [2, 3]]", "", SPECS[3])
@example("[[[], [1, 2]]]", "", SPECS[2])
@example("[]", "", SPECS[0])
@example("[[[1], 2]]", "", SPECS[2])
def test_simdjson_and_orjson_agree(text, end, spec):
    """Simdjson reads the same values to the last bit, or nothing."""
    body = (ROWS % text.encode())[:-1] + end.encode() + b"}"
    array = json_numbers.read(body, spec)
    if array is not None:
        wanted = by_orjson(body, spec)
        assert wanted is not None
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
        assert array.tobytes() == wanted.tobytes()


@given(st.binary(max_size=30), st.sampled_from(SPECS))
def test_any_bytes_are_left_to_orjson_or_agree(inner, spec):
    """Bytes that are not text, or not JSON, are left to orjson."""
    for body in (inner, ROWS % inner, ROWS % (b"[[1, 2], " + inner + b"]")):
        array = json_numbers.read(body, spec)
        if array is not None:
            np.testing.assert_array_equal(array, by_orjson(body, spec))


@pytest.mark.parametrize(
    ("body", "dtype", "shape", "values"),
    [
        (PLAIN, "f4", (2,), [[1, 2.5], [-3e2, 0.1]]),
        (PLAIN, "f2", (None,), [[1, 2.5], [-3e2, 0.1]]),
        (ROWS % b"[[-0.0], [5]]", "f8", (1,), [[-0.0], [5]]),
        (ROWS % b"[1, 2, 3]", "f4", (), [1, 2, 3]),
        (ROWS % b"[[[1], [2]]]", "f4", (2, None), [[[1], [2]]]),
        (b' {"\\u0069nstances" :[ [ 7 ] ]}\n', "f4", (1,), [[7]]),
    ],
)
def test_evenly_nested_floats_are_read_by_simdjson(body, dtype, shape, values):
    """Evenly nested finite numbers become one array."""
    array = json_numbers.read(body, TensorSpec("x", np.dtype(dtype), shape))
    np.testing.assert_array_equal(array, np.array(values, dtype), strict=True)


@pytest.mark.parametrize("count", [499, 500, 501, 1003])
def test_long_rows_are_read_in_slices(count):
    """Each value is at its place, at any number of values."""
    values = np.random.default_rng(count).random((2, count), np.float32)
    body = json_text.dumps({"instances": values})
    spec = TensorSpec("x", np.dtype("f4"), (count,))
    np.testing.assert_array_equal(json_numbers.read(body, spec), values)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"1", b"{}", b'{"inputs": [[1, 2]]}', ROWS % b"1", ROWS % b"[]"),
        *(ROWS % b"[1, 2]", ROWS % b"[[1, 2], [3]]", ROWS % b"[[1, 2], 3]"),
        *(ROWS % b"[[1, true]]", ROWS % b'[[1, "2"]]', ROWS % b"[[1, null]]"),
        *(ROWS % b"[[1, NaN]]", ROWS % b"[[1, 1e39]]", ROWS % b"[[[], [1, 2]]]"),
        b'{"instances": [[1, 2]], "signature_name": "other"}',
        b'{"instances": [[1, 2]], "instances": [[3, 4]]}',
        PLAIN + b" behind",
        PLAIN + b" " * (1 << 16),
    ],
)
def test_other_bodies_are_left_to_orjson(body):
    """Another key, shape, type or range, or too many bytes, gives None."""
    assert json_numbers.read(body, TensorSpec("x", np.dtype("f4"), (2,))) is None
    # The parser is not left in a bad state.
    assert json_numbers.read(PLAIN, TensorSpec("x", np.dtype("f4"), (2,))) is not None


@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "O", "c8"])
def test_other_dtypes_are_left_to_orjson(dtype):
    """Inputs of integers, bools and strings are not read."""
    assert json_numbers.read(PLAIN, TensorSpec("x", np.dtype(dtype), (2,))) is None


@pytest.mark.parametrize(
    ("size", "unused"),
    [
        (json_numbers.MIN_BYTES, (json_text, "loads")),
        (json_numbers.MIN_BYTES - 1, (json_numbers, "read")),
    ],
)
def test_size_of_the_body_chooses_the_parser(size, unused, monkeypatch):
    """Small bodies are not read by simdjson, larger ones not by orjson."""
    monkeypatch.setattr(*unused, None)
    request = rows.decode(PLAIN.ljust(size), {DEFAULT_SIGNATURE: takes("f4", 2)})
    wanted = np.array([[1, 2.5], [-3e2, 0.1]], "f4")
    np.testing.assert_array_equal(request.inputs["x"], wanted, strict=True)
    assert (request.signature_name, request.columnar) == (DEFAULT_SIGNATURE, False)


def test_threads_read_their_own_bodies():
    """Concurrent threads never get the rows of another thread's body."""
    spec = TensorSpec("x", np.dtype("f4"), (2,))

    def work(place):
        body = ROWS % (b"[[%d, 1]]" % place)
        for _ in range(300):
            assert json_numbers.read(body, spec).tolist() == [[place, 1]]

    in_parallel(work, 8)
