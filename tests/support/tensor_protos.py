"""TensorFlow's TensorProto: its dtypes, values of each, and arrays as messages."""

import numpy as np

from app.codec import tensor_proto
from app.engines.base import Array
from app.protocols.grpc_messages import message_class

TensorProto = message_class("tensorflow.TensorProto")
# The number of each dtype in TensorFlow's enum, and the field of its values.
DTYPES = {
    **{"f4": (1, "float_val"), "f8": (2, "double_val"), "f2": (19, "half_val")},
    **{"i1": (6, "int_val"), "i2": (5, "int_val"), "i4": (3, "int_val")},
    **{"u1": (4, "int_val"), "u2": (17, "int_val"), "u4": (22, "uint32_val")},
    **{"i8": (9, "int64_val"), "u8": (23, "uint64_val"), "?": (10, "bool_val")},
    "O": (7, "string_val"),
}
NUMBERS = [dtype for dtype in DTYPES if dtype != "O"]


def values_of(dtype: str) -> Array:
    """Return six values of a dtype, among them its limits."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 0, 1, 2, 100], dtype)
    if kind == "O":
        return np.array([b"", b"a\0", b"\xff", "é".encode(), b"b" * 300, b"1"], "O")
    if kind == "b":
        return np.array([True, False, False, True, True, False])
    return np.array([np.nan, np.inf, -0.0, 1 / 3, 60000, 1e-7], dtype)


def written(array: Array) -> bytes:
    """Return the bytes of an array in a response."""
    packed = message_class("basket.PackedTensor")()
    tensor_proto.write(packed, array)
    content: bytes = packed.SerializeToString()
    return content


def check_same(back: Array, array: Array) -> None:
    """Check that an array came back to the bit."""
    assert (back.dtype, back.shape) == (array.dtype, array.shape), (back, array)
    same = back.tolist() == array.tolist() if array.dtype == "O" else None
    assert same or back.tobytes() == array.tobytes(), (back, array)
