"""Properties of the codecs of rows: any input is handled, and round trips are exact."""

import json

import hypothesis.extra.numpy as numpy_arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codec import npy, rows
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput
from tests.support.exchanges import npy_of
from tests.support.signatures import check_inputs, takes, takes_several

# The bits of the one float32 that, with its negative, becomes its neighbor when its
# shortest decimal is read as a double first, as JSON parsers do.
LOST_BY_DOUBLE = 0x15AE43FD
SIGNATURES = [
    takes("f4"),
    takes("f8", 2),
    takes("i8", None),
    takes("u8"),
    takes("?", 2, None),
    takes("i1", None, None),
    takes("O"),
    takes("O", None),
    takes_several(a=("f4", None), b=("i4",)),
    takes_several(a=("O", None), b=("f2",)),
]
any_signature = st.sampled_from(SIGNATURES)

JSON_BODIES = [
    b'{"instances": [[1.5, -2], [3e2, NaN]]}',
    b'{"instances": [1, 2, 3], "signature_name": "serving_default"}',
    b'{"instances": [[true, false], [false, true]]}',
    b'{"instances": [{"a": [1, 2], "b": 3}, {"a": [4, 5], "b": 6}]}',
    b'{"instances": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}',
    b'{"inputs": {"a": [[1, 2], [4, 5]], "b": [3, 6]}}',
    b'{"inputs": [[1.5, -2], [3e2, Inf]]}',
    b'{"inputs": {"x": ["a", {"b64": "AAE="}]}}',
    b'{"instances": [["a", {"b64": "AAE="}], ["", "NaN"]]}',
]
strings = st.sampled_from(["a", "b", "x", "NaN", "1", "\ud800", "instances", "b64"])
numbers = st.sampled_from(
    [0, -1, 300, 2**63, 2**64, 10**300, 10**400, 1.5, -0.0, 1e39, np.nan, np.inf]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=2)
    ),
    max_leaves=8,
)
some_rows = st.lists(values, min_size=1, max_size=3)


NPY_BODIES = [
    npy_of(np.array([[1.5, -2], [3e2, np.nan]], "f4")),
    npy_of(np.asfortranarray(np.ones((2, 2), "?"))),
    npy_of(np.array([1, 2, 3], ">i8")),
    npy_of(np.arange(8, dtype="i1").reshape(2, 2, 2)),
    npy_of(np.array([1.5], "g")),
]


def decode_rows(body: bytes, signature):
    return rows.decode(body, {DEFAULT_SIGNATURE: signature}).inputs


def check(decode, body: bytes, signature) -> None:
    """Check that a body gives a short BadInput, or arrays as the signature says."""
    try:
        arrays = decode(body, signature)
    except BadInput as refused:
        text = str(refused).encode()
        assert 0 < len(text) < 1000
        return
    assert check_inputs(arrays, signature) <= len(body)


@given(body=st.binary(max_size=60), signature=any_signature)
def test_any_bytes_are_decoded_or_refused(body, signature):
    """Any bytes give the right arrays or a BadInput."""
    check(decode_rows, body, signature)
    check(decode_rows, b'{"instances": [' + body + b"]}", signature)
    check(decode_rows, b'{"inputs": {"x": [' + body + b"]}}", signature)
    check(npy.decode, body, signature)
    check(npy.decode, b"\x93NUMPY\x01\x00" + body, signature)


@given(
    value=values
    | some_rows.map(lambda listed: {"instances": listed})
    | (some_rows | st.dictionaries(strings, some_rows, max_size=3)).map(
        lambda columns: {"inputs": columns}
    ),
    signature=any_signature,
)
def test_any_json_is_decoded_or_refused(value, signature):
    """Any JSON gives the right arrays or a BadInput."""
    check(decode_rows, json.dumps(value).encode(), signature)


@given(
    descr=st.sampled_from(["<f4", ">f8", "|b1", "|O", "<U2", "<f4,<i4", "f3", "<f16"]),
    fortran=st.sampled_from(["True", "False", "None"]),
    shape=st.lists(
        st.sampled_from(["0", "1", "2", "-1", "True", str(1 << 62), "9" * 4000, "1L"]),
        max_size=3,
    ),
    data=st.binary(max_size=32),
    signature=any_signature,
)
def test_any_npy_header_is_decoded_or_refused(descr, fortran, shape, data, signature):
    """Any claim in a .npy header gives the right array or a BadInput."""
    sizes = "".join(f"{size}," for size in shape)
    header = f"{{'descr':'{descr}','fortran_order':{fortran},'shape':({sizes})}}\n"
    start = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little")
    check(npy.decode, start + header.encode() + data, signature)


@pytest.mark.parametrize(
    ("decode", "bodies"),
    [(decode_rows, JSON_BODIES), (npy.decode, NPY_BODIES)],
    ids=["json", "npy"],
)
@given(data=st.data())
@settings(max_examples=60)
def test_mutated_body_is_decoded_or_refused(decode, bodies, data):
    """A good body with a few changed bytes gives right arrays or a BadInput."""
    body = data.draw(st.sampled_from(bodies))
    place = data.draw(st.integers(0, len(body)))
    removed = data.draw(st.integers(0, 3))
    put = data.draw(
        st.sampled_from([b"", b"[", b"]", b'"', b"\\u", b"9" * 400, b"null"])
        | st.binary(max_size=2)
    )
    mutated = body[:place] + put + body[place + removed :]
    check(decode, mutated, data.draw(any_signature))


NUMBERS = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
shapes = numpy_arrays.array_shapes(max_dims=3, max_side=4)


@given(data=st.data())
@pytest.mark.parametrize("dtype", NUMBERS)
@settings(max_examples=8)
def test_npy_round_trip(dtype, data):
    """An array that is written as .npy is read back to the bit."""
    array = data.draw(numpy_arrays.arrays(dtype, shapes))
    signature = takes(dtype, *array.shape[1:])
    same(npy.decode(npy.encode({"y": array}), signature)["x"], array)


def arrays_of(dtype: str, shape) -> st.SearchStrategy[np.ndarray]:
    """Return arrays that JSON can hold: it has one NaN, floats have many."""
    if dtype == "O":
        return numpy_arrays.arrays(dtype, shape, elements=st.binary(max_size=5))
    array = numpy_arrays.arrays(dtype, shape)
    if dtype == "f4":
        array = array.filter(
            lambda array: not (array.view("u4") & 0x7FFFFFFF == LOST_BY_DOUBLE).any()
        )
    return array.map(with_one_nan)


def with_one_nan(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array


@given(data=st.data(), shape=shapes, columnar=st.booleans(), free=st.booleans())
@pytest.mark.parametrize("dtype", [*NUMBERS, "O"])
@settings(max_examples=8)
def test_json_round_trip_of_one_tensor(dtype, data, shape, columnar, free):
    """An array that is written as JSON is read back the same, in both forms."""
    array = data.draw(arrays_of(dtype, shape))
    signature = takes(dtype, *([None] * len(shape[1:]) if free else shape[1:]))
    body = rows.encode({"y": array}, rows.Form(columnar))
    same(decode_rows(as_request(body), signature)["x"], array)


@given(
    data=st.data(),
    dtypes=st.lists(st.sampled_from([*NUMBERS, "O"]), min_size=2, max_size=4),
    columnar=st.booleans(),
)
@settings(max_examples=40)
def test_json_round_trip_of_several_tensors(data, dtypes, columnar):
    """Several arrays of any dtypes and shapes are read back, in both forms."""
    count = data.draw(st.integers(1, 4))
    inner = numpy_arrays.array_shapes(min_dims=0, max_dims=2, max_side=3)
    arrays = {
        f"n{place}": data.draw(arrays_of(dtype, (count, *data.draw(inner))))
        for place, dtype in enumerate(dtypes)
    }
    signature = takes_several(
        **{name: (array.dtype, *array.shape[1:]) for name, array in arrays.items()}
    )
    body = rows.encode(arrays, rows.Form(columnar))
    back = decode_rows(as_request(body), signature)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        same(back[name], array)


def as_request(answer: bytes) -> bytes:
    """Return a response's body with a request's key."""
    answer = answer.replace(b'{"predictions":', b'{"instances":', 1)
    return answer.replace(b'{"outputs":', b'{"inputs":', 1)


def same(back: np.ndarray, array: np.ndarray) -> None:
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    if array.dtype.kind == "O":
        assert back.tolist() == array.tolist()
    else:
        assert back.tobytes() == array.tobytes()
