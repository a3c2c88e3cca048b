"""TensorFlow's TensorProto: tensors that are read, written and refused."""

import contextlib

import hypothesis.extra.numpy as numpy_arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codec import tensor_proto
from app.codec.bounds import UNBOUNDED, Bounds
from app.engines.base import Signature, TensorSpec
from app.errors import BadInput, TooLarge, Unsupported
from tests.support.signatures import check_inputs, takes, takes_several
from tests.support.tensor_protos import (
    DTYPES,
    NUMBERS,
    TensorProto,
    check_same,
    values_of,
    written,
)

LIMIT = 1 << 20


def message(dtype, shape, values=(), content=b"", **others):
    """Return a TensorProto with the values of a dtype's field."""
    number, field = DTYPES[dtype]
    fields = {"dtype": number, "tensor_content": content, field: values}
    fields["tensor_shape"] = {"dim": [{"size": size} for size in shape]}
    return TensorProto(**fields | others)


def in_field(array):
    """Return an array as a TensorProto with its values in the field of its dtype."""
    stored = "u2" if array.dtype.char == "e" else array.dtype
    values = np.ravel(array).view(stored).tolist()
    return message(array.dtype.str[1:].replace("b1", "?"), array.shape, values)


def in_content(array):
    """Return an array as a TensorProto with its values in tensor_content."""
    dtype = array.dtype.str[1:].replace("b1", "?")
    return message(dtype, array.shape, content=array.tobytes())


def read(tensor, signature, max_bytes=LIMIT):
    """Return the array of the input x."""
    return tensor_proto.read_inputs({"x": tensor}, signature, UNBOUNDED, max_bytes)["x"]


def refusal(tensor, signature, kind=BadInput, max_bytes=LIMIT):
    """Return the text of a refusal after the name of the input."""
    with pytest.raises(kind) as raised:
        read(tensor, signature, max_bytes)
    assert len(str(raised.value)) < 250
    return str(raised.value).removeprefix("input 'x': ")


def whole(*inputs):
    """Return a signature of whole tensors (name, dtype, shape); None: any shape."""
    specs = [
        TensorSpec(name, np.dtype(dtype), shape or (), any_rank=shape is None)
        for name, dtype, shape in inputs
    ]
    return Signature(tuple(specs), (), None, True, "input x is odd")


@pytest.mark.parametrize(
    ("made", "dtype"),
    [(in_field, dtype) for dtype in DTYPES] + [(in_content, each) for each in NUMBERS],
)
def test_values_of_each_dtype_are_read(made, dtype):
    """Each dtype takes its values to its limits, from its field or as bytes."""
    array = values_of(dtype).reshape(3, 2)
    check_same(read(made(array), takes(dtype, None)), array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_array_of_each_dtype_is_written_to_its_field(dtype):
    """Clients that read only the field of the dtype find the values there."""
    array = values_of(dtype).reshape(2, 1, 3)
    assert written(array) == in_field(array).SerializeToString()
    assert written(array[:0]) == in_field(array[:0]).SerializeToString()
    scalar = TensorProto.FromString(written(array[0, 0, 1:2].reshape(())))
    assert scalar.HasField("tensor_shape")
    assert not scalar.tensor_shape.dim


@pytest.mark.parametrize("dtype", DTYPES)
def test_array_that_is_not_contiguous_is_written_in_c_order(dtype):
    """Values follow each other as in the shape, whatever the array's strides."""
    array = values_of(dtype).reshape(2, 3)
    assert written(array.T) == written(np.ascontiguousarray(array.T))
    assert written(array[:, ::2]) == written(array[:, ::2].copy())


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", ">i4", ">u8"])
def test_big_endian_array_is_written_as_its_values(dtype):
    """The bytes of a field are little-endian."""
    array = values_of(dtype[1:])
    assert written(array.astype(dtype)) == written(array)


def test_dtype_that_tensorflow_has_not_is_refused():
    """The error names the dtype."""
    with pytest.raises(Unsupported, match=r"^datetime64\[D\] has no data type in Te"):
        written(np.array(["2026-01-01"], "M8[D]"))


@pytest.mark.parametrize("made", [in_field, in_content])
@given(data=st.data())
def test_any_array_round_trips(made, data):
    """An array of any dtype, shape and values comes back to the bit."""
    dtypes = [*DTYPES] if made is in_field else NUMBERS
    dtype = data.draw(st.sampled_from(dtypes))
    shapes = numpy_arrays.array_shapes(min_dims=1, max_dims=4, max_side=4)
    # Python's floats do not keep a NaN's bits.
    elements = st.binary() if dtype == "O" else {"allow_nan": False}
    array = data.draw(numpy_arrays.arrays(dtype, shapes, elements=elements))
    signature = takes(dtype, *array.shape[1:])
    check_same(read(made(array), signature), array)
    check_same(read(TensorProto.FromString(written(array)), signature), array)


@given(
    dtype=st.sampled_from([*DTYPES]),
    shape=st.lists(st.sampled_from([-1, 0, 1, 2, 3, 1 << 62]), max_size=3),
    content=st.sampled_from([b"", b"", b"\1", b"1234", b"12345678"]),
    count=st.integers(0, 7),
    signature=st.sampled_from([takes("f4"), takes("?", None), takes("O", 2)]),
)
def test_any_message_is_read_or_refused(dtype, shape, content, count, signature):
    """What is read has the shape and dtype of the signature."""
    tensor = message(dtype, shape, [b"1" if dtype == "O" else 1] * count, content)
    with contextlib.suppress(BadInput, TooLarge):
        check_inputs({"x": read(tensor, signature, 1 << 10)}, signature)


@pytest.mark.parametrize(
    ("dtype", "values", "wanted"),
    [
        ("f4", [1.5], [[1.5, 1.5], [1.5, 1.5]]),
        ("i1", [1, -2], [[1, -2], [-2, -2]]),
        ("?", [False, False, True], [[False, False], [True, True]]),
        ("f2", [0x3C00, 0x4000], [[1, 2], [2, 2]]),
        ("O", [b"a", b"b"], [[b"a", b"b"], [b"b", b"b"]]),
    ],
)
def test_last_value_stands_for_those_that_follow(dtype, values, wanted):
    """TensorFlow writes tensors of one value so."""
    array = read(message(dtype, [2, 2], values), takes(dtype, 2))
    assert array.dtype == dtype
    assert array.tolist() == wanted


@pytest.mark.parametrize(("dtype", "size"), [("f4", 4), ("u1", 1), ("O", 9)])
def test_repeated_value_is_bounded(dtype, size):
    """A short message makes no larger tensor than a long one could."""
    value = [b"a" if dtype == "O" else 1]
    assert read(message(dtype, [10], value), takes(dtype), 10 * size).shape == (10,)
    for rows in (11, 1 << 40, (1 << 63) - 1):
        tensor = message(dtype, [rows], value)
        text = refusal(tensor, takes(dtype), TooLarge, 10 * size)
        assert text.startswith(f"shape [{rows}] of DT_")
        assert text.endswith(f" is more than {10 * size} bytes")


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (message("f4", [10, 1000], [1]), 40_000),
        (message("O", [10], [b"a" * 92]), 1000),
        (message("f4", [2], [1, 2]), 0),
        (message("f4", [2]), 0),
        (message("f4", [2], content=b"12345678"), 0),
        (TensorProto(dtype=14, tensor_shape={"dim": [{"size": 9}]}), 0),
    ],
)
def test_bytes_of_a_repeated_value_are_known_before_it_is_read(tensor, size):
    """They count as those of a large body."""
    assert tensor_proto.filled_bytes([tensor, tensor]) == 2 * size


SHAPE = "expected shape [-1, 2], given "
NO_RANK = TensorProto(dtype=1, tensor_shape={"unknown_rank": True}, float_val=[1])


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (message("f8", [1, 2], [1, 2]), "expected DT_FLOAT, given DT_DOUBLE"),
        (TensorProto(dtype=14), "expected DT_FLOAT, given type 14"),
        (TensorProto(), "expected DT_FLOAT, given type 0"),
        (message("f4", [], [1]), SHAPE + "[]"),
        (TensorProto(dtype=1, float_val=[1]), SHAPE + "[]"),
        (message("f4", [2], [1, 2]), SHAPE + "[2]"),
        (message("f4", [1, 3], [1] * 3), SHAPE + "[1, 3]"),
        (message("f4", [1, -2], [1] * 2), SHAPE + "[1, -2]"),
        (message("f4", [-1, 2], [1] * 2), SHAPE + "[-1, 2]"),
        (message("f4", [1] * 90, [1]), f"{SHAPE}{[1] * 8}"),
        (NO_RANK, SHAPE + "unknown rank"),
        (message("f4", [0, 2]), "shape [0, 2] has no rows"),
        (message("f4", [1, 2]), "shape [1, 2] is 2 values in float_val, given 0"),
        (message("f4", [1, 2], [1] * 3), "[1, 2] is 2 values in float_val, given 3"),
        (message("f4", [1, 2], int_val=[1, 2]), "2 values in float_val, given 0"),
        (
            message("f4", [1, 2], content=b"1234567"),
            "shape [1, 2] of DT_FLOAT is 8 bytes, given 7",
        ),
        (message("f4", [1 << 62, 2], content=b"1"), f"is {1 << 65} bytes, given 1"),
    ],
)
def test_tensor_that_does_not_fit_is_refused(tensor, text):
    """The error says what was expected, and what was given."""
    assert text in refusal(tensor, takes("f4", 2))


@pytest.mark.parametrize(
    ("dtype", "values", "text"),
    [
        ("u1", [0, 256], "int_val[1]: 256 is out of range for DT_UINT8"),
        ("u1", [-1, 0], "int_val[0]: -1 is out of range for DT_UINT8"),
        ("i1", [127, -129], "int_val[1]: -129 is out of range for DT_INT8"),
        ("i2", [0, 1 << 15], "int_val[1]: 32768 is out of range for DT_INT16"),
        ("u2", [65536, 0], "int_val[0]: 65536 is out of range for DT_UINT16"),
        ("f2", [0, 65536], "half_val[1]: 65536 is out of range for DT_HALF"),
        ("f2", [0, -1], "half_val[1]: -1 is out of range for DT_HALF"),
        ("?", b"\0\2", "tensor_content: a bool is 0 or 1, given 2"),
        ("O", b"ab", "expected strings in string_val, not tensor_content"),
    ],
)
def test_value_that_the_dtype_can_not_hold_is_refused(dtype, values, text):
    """A field may be wider than its dtype, and no value is cut; a bool is 0 or 1."""
    name = "content" if isinstance(values, bytes) else "values"
    assert refusal(message(dtype, [2], **{name: values}), takes(dtype)) == text


PAIR = takes_several(a=("f4",), b=("i8",))
A, B = message("f4", [2], [1, 2]), message("i8", [2], [3, 4])


def test_inputs_are_in_the_models_order():
    """The order of a request's inputs does not matter."""
    inputs = tensor_proto.read_inputs({"b": B, "a": A}, PAIR, UNBOUNDED, LIMIT)
    assert {name: array.tolist() for name, array in inputs.items()} == {
        "a": [1, 2],
        "b": [3, 4],
    }
    assert [*inputs] == ["a", "b"]


@pytest.mark.parametrize(
    ("inputs", "kind", "text"),
    [
        ({}, BadInput, "input 'a' is missing"),
        ({"a": A}, BadInput, "input 'b' is missing"),
        (
            {"a": A, "b": B, "c" * 99: A},
            BadInput,
            f"inputs: the model has no input {'c' * 60!r}, it has: a, b",
        ),
        (
            {"a": A, "b": message("i8", [3], [1])},
            BadInput,
            "input 'a' has 2 rows and input 'b' 3; rows run in batches, so the first ",
        ),
        ({"a": message("f4", [4], [1]), "b": B}, TooLarge, "4 rows in one request, "),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused(inputs, kind, text):
    """Each input is given once, with equally many rows, up to the bound."""
    with pytest.raises(kind) as raised:
        tensor_proto.read_inputs(inputs, PAIR, Bounds(max_rows=3), LIMIT)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((), ()),
        ((3,), (3,)),
        ((None, 2), (0, 2)),
        (None, ()),
        (None, (1, 2, 0)),
        (None, (3, 2)),
    ],
)
def test_whole_tensor_is_the_only_row(shape, given):
    """A model without batches takes scalars, and sizes of 0, as they are."""
    array = np.arange(np.prod(given), dtype="i4").reshape(given)
    signature = whole(("x", "i4", shape))
    for made in (in_field, in_content):
        check_same(read(made(array), signature), array[np.newaxis])


def test_whole_tensors_have_no_rows_to_compare():
    """Their first sizes may differ, and exceed the bound on rows."""
    signature = whole(("a", "f4", (None,)), ("b", "i8", ()))
    tensors = {"a": message("f4", [5], [1]), "b": message("i8", [], [7])}
    inputs = tensor_proto.read_inputs(tensors, signature, Bounds(max_rows=2), LIMIT)
    assert inputs["a"].tolist() == [[1] * 5]
    assert inputs["b"].tolist() == [7]


@pytest.mark.parametrize(
    ("shape", "tensor", "text"),
    [
        ((None, 2), message("f4", [1, 3], [1]), "expected shape [-1, 2], given [1, 3]"),
        ((), message("f4", [1], [1]), "expected shape [], given [1]"),
        (None, message("f4", [2, -1], [1]), "expected shape [], given [2, -1]"),
        (
            None,
            message("f4", [1 << 62, 0, 9]),
            f"{[1 << 62, 0, 9]} is a shape without values whose other sizes multiply "
            "to more than 16777216",
        ),
        (None, message("f4", [1] * 64, [1]), "no array has 64 dimensions"),
        (None, message("f4", [1 << 62] * 300), "no array has 300 dimensions"),
        (None, NO_RANK, "expected shape [], given unknown rank"),
    ],
)
def test_whole_tensor_of_another_shape_is_refused(shape, tensor, text):
    """The error has the shape of the whole tensor."""
    with pytest.raises(BadInput) as raised:
        read(tensor, whole(("x", "f4", shape)))
    assert str(raised.value) == f"input 'x': {text}"
