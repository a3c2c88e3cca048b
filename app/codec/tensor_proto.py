"""TensorFlow's TensorProto, both ways: the tensors of TensorFlow Serving's gRPC API.

A tensor has its values as bytes in tensor_content, or as numbers in the field of its
dtype. There the last value may stand for all that follow, as TensorFlow writes tensors
of one value.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from app.codec import tensor_shape
from app.codec.bounds import Bounds
from app.codec.fit import check_equal_rows, check_range, of_bytes
from app.engines.base import Array, Signature, Tensors, TensorSpec
from app.errors import BadInput, TooLarge, Unsupported, too_many_rows


class _Kind(NamedTuple):
    """How a tensor has values of one dtype.

    `number` is that of the enum DataType. Values in `field` have dtype `stored`, or
    its bits.
    """

    number: int
    name: str
    field: str
    stored: str


# By the dtype's kind and size in bytes, as NumPy writes them.
_KINDS = {
    "f4": _Kind(1, "DT_FLOAT", "float_val", "f4"),
    "f8": _Kind(2, "DT_DOUBLE", "double_val", "f8"),
    "i4": _Kind(3, "DT_INT32", "int_val", "i4"),
    "u1": _Kind(4, "DT_UINT8", "int_val", "i4"),
    "i2": _Kind(5, "DT_INT16", "int_val", "i4"),
    "i1": _Kind(6, "DT_INT8", "int_val", "i4"),
    "O": _Kind(7, "DT_STRING", "string_val", "O"),
    "i8": _Kind(9, "DT_INT64", "int64_val", "i8"),
    "b1": _Kind(10, "DT_BOOL", "bool_val", "b1"),
    "u2": _Kind(17, "DT_UINT16", "int_val", "i4"),
    "f2": _Kind(19, "DT_HALF", "half_val", "u2"),
    "u4": _Kind(22, "DT_UINT32", "uint32_val", "u4"),
    "u8": _Kind(23, "DT_UINT64", "uint64_val", "u8"),
}
_NAMES = {kind.number: kind.name for kind in _KINDS.values()}
_BY_NUMBER = {kind.number: (kind, np.dtype(name)) for name, kind in _KINDS.items()}
# Fields that a PackedTensor has as the bytes of the array.
_PACKED = ("float_val", "double_val", "bool_val")
_SHOWN = 8


def read_inputs(
    given: Mapping[str, Any], signature: Signature, bounds: Bounds, max_bytes: int
) -> Tensors:
    """Return a model's inputs as arrays (rows, *shape), each of as many rows.

    `given` is the TensorProto of each input by name. A tensor whose last value stands
    for others may have up to `max_bytes`.

    Raises:
        BadInput: the text names the input and what is wrong with it.
        TooLarge: more rows than the bounds allow, or more bytes.
    """
    names = [spec.name for spec in signature.inputs]
    for name in given:
        if name not in names:
            raise BadInput(
                f"inputs: the model has no input {name[:60]!r}, it has: "
                f"{', '.join(names[:_SHOWN])}"
            )
    inputs: dict[str, Array] = {}
    for spec in signature.inputs:
        if spec.name not in given:
            raise BadInput(f"input {spec.name!r} is missing")
        array = _read(given[spec.name], spec, signature.takes_whole_tensors, max_bytes)
        if signature.takes_whole_tensors:
            inputs[spec.name] = array[np.newaxis]
            continue
        if len(array) > bounds.max_rows:
            raise too_many_rows(bounds.max_rows, len(array))
        inputs[spec.name] = array
    check_equal_rows(inputs, "input {!r}")
    return inputs


def filled_bytes(given: Iterable[Any]) -> int:
    """Return the bytes of the tensors whose last value stands for others."""
    size = 0
    for tensor in given:
        if tensor.tensor_content or tensor.dtype not in _BY_NUMBER:
            continue
        kind, dtype = _BY_NUMBER[tensor.dtype]
        values = getattr(tensor, kind.field)
        count = math.prod(dim.size for dim in tensor.tensor_shape.dim)
        if 0 < len(values) < count:
            size += count * _value_bytes(values, dtype)
    return size


def write(tensor: Any, array: Array) -> None:
    """Fill a PackedTensor with an array, in the field of its dtype.

    TensorFlow Serving answers so, and many clients read only that field.

    Raises:
        Unsupported: TensorFlow has no such dtype.
    """
    kind = _kind(array.dtype)
    tensor.dtype = kind.number
    # An empty message says that the tensor has no dimensions.
    tensor.tensor_shape.SetInParent()
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    if kind.field in _PACKED:
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        setattr(tensor, kind.field, plain.tobytes())
    else:
        flat = array.ravel()
        if kind.field == "half_val":
            flat = flat.astype(np.float16, copy=False).view(np.uint16)
        getattr(tensor, kind.field).extend(flat.tolist())


def _kind(dtype: np.dtype[np.generic]) -> _Kind:
    kind = _KINDS.get("O" if dtype.kind == "O" else dtype.str[1:])
    if kind is None:
        raise Unsupported(f"{dtype} has no data type in TensorFlow")
    return kind


def _read(tensor: Any, spec: TensorSpec, is_whole: bool, max_bytes: int) -> Array:
    place = f"input {spec.name!r}"
    kind = _kind(spec.dtype)
    if tensor.dtype != kind.number:
        given = _NAMES.get(tensor.dtype, f"type {tensor.dtype}")
        raise BadInput(f"{place}: expected {kind.name}, given {given}")
    shape = _shape(tensor.tensor_shape, spec, is_whole, place)
    content = tensor.tensor_content
    if not content:
        return _read_field(tensor, kind, spec, shape, place, max_bytes)
    if spec.dtype.kind == "O":
        raise BadInput(f"{place}: expected strings in {kind.field}, not tensor_content")
    return of_bytes(content, spec, shape, f"{place}: tensor_content", kind.name)


def _shape(shape: Any, spec: TensorSpec, is_whole: bool, place: str) -> tuple[int, ...]:
    sizes = tuple(dim.size for dim in shape.dim)
    is_shape = not shape.unknown_rank and all(size >= 0 for size in sizes)
    known = sizes if is_shape else None

    def shown() -> str:
        return "unknown rank" if shape.unknown_rank else str(list(sizes[:_SHOWN]))

    return tensor_shape.check(known, shown, spec, is_whole, place)


def _read_field(
    tensor: Any,
    kind: _Kind,
    spec: TensorSpec,
    shape: tuple[int, ...],
    place: str,
    max_bytes: int,
) -> Array:
    values = getattr(tensor, kind.field)
    count = math.prod(shape)
    array = _values(values, kind, spec, place)
    if len(array) == count:
        return array.reshape(shape)
    if not 0 < len(array) < count:
        raise BadInput(
            f"{place}: shape {list(shape)} is {count} values in {kind.field}, given "
            f"{len(array)}"
        )
    if count * _value_bytes(values, spec.dtype) > max_bytes:
        raise TooLarge(
            f"{place}: shape {list(shape)} of {kind.name} is more than {max_bytes} "
            "bytes"
        )
    filled = np.empty(count, spec.dtype)
    filled[: len(array)] = array
    filled[len(array) :] = array[-1]
    return filled.reshape(shape)


def _value_bytes(values: Any, dtype: np.dtype[np.generic]) -> int:
    """Return the bytes of a value that repeats the last one."""
    # An element of dtype object is a pointer; a model that gets texts copies them.
    return dtype.itemsize + (len(values[-1]) if dtype.kind == "O" else 0)


def _values(values: Any, kind: _Kind, spec: TensorSpec, place: str) -> Array:
    """Return the values of a field in the input's dtype."""
    if spec.dtype.kind == "O":
        return np.array([*values], object)
    stored = np.array(values, "i4" if kind.field == "half_val" else kind.stored)
    at = f"{place}: {kind.field}"
    if kind.field == "half_val":
        bits = stored.astype("u2")
        check_range(bits != stored, stored, kind.name, at)
        return bits.view(spec.dtype)
    cast = stored.astype(spec.dtype)
    if spec.dtype.kind in "iu":
        check_range(cast != stored, stored, kind.name, at)
    return cast
