"""Properties of the V2 codec: any input is handled, and round trips are exact."""

import contextlib
import json

import hypothesis.extra.numpy as numpy_arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient

from app.codec.v2 import tensors
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, Unsupported
from tests.support.signatures import check_inputs
from tests.support.tensors import body_of, echoes, outputs_of

NUMBERS = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
SIGNATURES = [
    echoes(x=("f4",)),
    echoes(x=("f8", None, 2)),
    echoes(x=("?", None, None)),
    echoes(x=("f2", 2)),
    echoes(x=("O",)),
    echoes(x=("O", None)),
    echoes(x=("c8",)),
    echoes(x=("f4", 2), y=("i8",), z=("O",)),
]
any_signature = st.sampled_from(SIGNATURES)
shapes = numpy_arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


def there_and_back(array, *, binary_in, binary_out):
    """Encode an array with tritonclient, and decode the echo with it."""
    outputs = outputs_of(["out_x"], binary=binary_out)
    body, size = body_of({"x": array}, binary=binary_in, outputs=outputs)
    signature = echoes(x=(array.dtype, *array.shape[1:]))
    request = tensors.decode(body, size, {DEFAULT_SIGNATURE: signature})
    (read,) = request.inputs.values()
    body, size = tensors.encode("m", 1, request, {"out_x": read})
    answer = InferenceServerClient.parse_response_body(body, header_length=size)
    return answer.as_numpy("out_x")


@pytest.mark.parametrize("dtype", [*NUMBERS, "f2"])
@given(data=st.data())
@settings(max_examples=6)
def test_binary_round_trip_of_numbers(dtype, data):
    """Binary numbers come back to the bit, NaN and -0.0 too."""
    array = data.draw(numpy_arrays.arrays(dtype, shapes))
    given = there_and_back(array, binary_in=True, binary_out=True)
    assert given.dtype == array.dtype
    assert given.shape == array.shape
    assert given.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("binary_in", [True, False])
@given(data=st.data())
@settings(max_examples=5)
def test_json_round_trip_of_numbers(dtype, binary_in, data):
    """Numbers in JSON come back the same, NaN and infinities too."""
    array = data.draw(numpy_arrays.arrays(dtype, shapes))
    given = there_and_back(array, binary_in=binary_in, binary_out=False)
    assert given.dtype == array.dtype
    np.testing.assert_array_equal(given, array)


@given(data=st.data(), shape=shapes)
@settings(max_examples=25)
def test_round_trip_of_strings(data, shape):
    """Text comes back in both forms, any bytes in binary."""
    array = data.draw(numpy_arrays.arrays(object, shape, elements=texts))
    for binary_in in (True, False):
        given = there_and_back(array, binary_in=binary_in, binary_out=False)
        assert given.tolist() == array.tolist()
    blobs = data.draw(numpy_arrays.arrays(object, shape, elements=st.binary()))
    given = there_and_back(blobs, binary_in=True, binary_out=True)
    assert given.tolist() == blobs.tolist()


def check(body, size, signature):
    """Check that a body gives a short refusal, or arrays as the signature says."""
    try:
        request = tensors.decode(body, size, {DEFAULT_SIGNATURE: signature})
    except (BadInput, Unsupported) as error:
        refusal = str(error).encode()
    else:
        refusal = b""
        check_arrays(request, signature)
    assert len(refusal) < 1000


def check_arrays(request, signature):
    """Check that the arrays are as the signature says, and can be encoded."""
    arrays = request.inputs
    check_inputs(arrays, signature)
    outputs = {f"out_{name}": array for name, array in arrays.items()}
    with contextlib.suppress(BadInput):  # a string that is not UTF-8, in JSON
        tensors.encode("m", 1, request, outputs)


@given(
    body=st.binary(max_size=80), size=st.none() | st.integers(0, 90), s=any_signature
)
@settings(max_examples=75)
def test_any_bytes_are_decoded_or_refused(body, size, s):
    """Any bytes with any JSON size give arrays or a refusal."""
    check(body, size, s)
    check(b'{"inputs": [' + body + b"]}", None, s)


names = st.sampled_from(["x", "y", "z", "out_x", "", "\ud800"])
numbers = st.sampled_from([0, 1, 2, -1, 4, 8, 2**31, 2**63, 2**64, 10**400, 1.5, 1e39])
anything = st.recursive(
    st.none() | st.booleans() | numbers | names | st.just(float("nan")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2)
    ),
    max_leaves=8,
)
datatypes = st.sampled_from(["FP32", "FP64", "FP16", "BOOL", "BYTES", "INT64", "BF16"])
some_shape = st.lists(st.sampled_from([0, 1, 2, 3, 1 << 62]), max_size=3)
a_tensor = st.fixed_dictionaries(
    {"name": names, "datatype": datatypes | anything, "shape": some_shape | anything},
    optional={
        "data": anything | st.lists(st.sampled_from([1, 2.5, True, "a", [1, 2]])),
        "parameters": anything
        | st.fixed_dictionaries({"binary_data_size": st.integers(-1, 20)}),
    },
)
parameters = st.dictionaries(
    st.sampled_from(["timeout", "binary_data_output", "binary_data", "sequence_id"]),
    anything,
)
a_request = st.fixed_dictionaries(
    {"inputs": st.lists(a_tensor, max_size=3) | anything},
    optional={
        "id": anything,
        "parameters": parameters | anything,
        "outputs": anything
        | st.lists(st.fixed_dictionaries({"name": names, "parameters": parameters})),
    },
)


@given(payload=a_request, tail=st.none() | st.binary(max_size=40), s=any_signature)
@settings(max_examples=50)
def test_any_request_is_decoded_or_refused(payload, tail, s):
    """Any JSON in the form of a request gives arrays or a refusal."""
    head = json.dumps(payload).encode()
    check(head + (tail or b""), None if tail is None else len(head), s)


@given(data=st.data())
@settings(max_examples=75)
def test_mutated_request_is_decoded_or_refused(data):
    """A good request, truncated or changed, gives arrays or a refusal."""
    arrays = {
        "x": np.arange(4, dtype="f4").reshape(2, 2),
        "y": np.array([3, -1]),
        "z": np.array([b"ab", b"\xff"], object),
    }
    body, size = body_of(arrays, binary=True, request_id="7")
    begin = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(begin, min(begin + 4, len(body))))
    put = data.draw(st.binary(max_size=3) | st.sampled_from([b"9" * 30, b"-", b"[]"]))
    changed = body[:begin] + put + body[end:]
    moved = data.draw(st.integers(-2, 2))
    check(changed, max(size + moved, 0), SIGNATURES[-1])
