"""Convert an array from a client to the dtype and shape that a model takes.

As strict as TensorFlow Serving: a float input takes integers and floats, an integer
input integers within its range, a bool input bools, a string input strings. No value
is wrapped, truncated or parsed out of a string.
"""

import itertools
import math
from collections.abc import Mapping, Sized

import numpy as np
import numpy.typing as npt

from app.engines.base import Array, Signature, Tensors, TensorSpec
from app.errors import BadInput, Unsupported

# Kind of an input's dtype -> kinds of array that it takes.
_TAKES = {"f": "fiu", "i": "iu", "u": "iu", "b": "b", "O": "O"}
# From this size on, the model's own dtype has no finite value: halfway between its
# largest one and the next.
_INFINITE_FROM = {"bfloat16": float.fromhex("0x1.ffp127")}


def type_name(dtype: np.dtype[np.generic]) -> str:
    """Return the dtype's name for people: "string" for dtype object."""
    return "string" if dtype.kind == "O" else str(dtype)


def has_json_form(spec: TensorSpec) -> bool:
    """Return whether JSON has values for the dtype of an input or output."""
    return spec.dtype.kind in _TAKES


def check_json_dtype(name: str, dtype: np.dtype[np.generic]) -> None:
    """Check that JSON has values for the dtype of the input or output `name`.

    Raises:
        Unsupported: it has none, as for complex numbers.
    """
    if dtype.kind not in _TAKES:
        raise Unsupported(f"{name}: {dtype} has no form in JSON")


def fit(array: Array, spec: TensorSpec, place: str, suffix: str = "") -> Array:
    """Return the rows (rows, *shape) in the input's dtype.

    Raises:
        BadInput: wrong dtype, wrong row shape, or a value out of range; the text
            begins with `place`, the number of the row, and `suffix`.
    """
    if array.dtype.kind not in _TAKES.get(spec.dtype.kind, ""):
        wanted, given = type_name(spec.dtype), type_name(array.dtype)
        raise BadInput(f"{place}: expected {wanted}, given {given}")
    if array.ndim == 0 or not spec.accepts(array.shape[1:]):
        shape = array.shape[1:] if array.ndim else "a single value"
        raise BadInput(
            f"{place}[0]{suffix}: expected shape {spec.shape_text()}, given {shape}"
        )
    if array.dtype == spec.dtype:
        return array
    try:
        # A signaling NaN is an invalid operation, and becomes a quiet NaN.
        with np.errstate(over="raise", invalid="ignore"):
            cast = array.astype(spec.dtype)
    except FloatingPointError:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(spec.dtype)
        lost = np.isinf(cast) & np.isfinite(array)
        check_range(lost, array, str(spec.dtype), place, suffix)
    if spec.dtype.kind in "iu":
        # astype wraps an integer that is out of range.
        check_range(cast != array, array, str(spec.dtype), place, suffix)
    return cast


def of_bytes(
    data: bytes | memoryview,
    spec: TensorSpec,
    shape: tuple[int, ...],
    place: str,
    datatype: str,
) -> Array:
    """Return an input's numbers as a view of their bytes: little-endian, in C order.

    `datatype` is the protocol's name for the dtype.

    Raises:
        BadInput: more or fewer bytes than the shape has, or a bool is no bool.
    """
    size = math.prod(shape) * spec.dtype.itemsize
    if len(data) != size:
        raise BadInput(
            f"{place}: shape {list(shape)} of {datatype} is {size} bytes, given "
            f"{len(data)}"
        )
    if spec.dtype.kind == "b":
        check_bools(data, spec.dtype, place)
    return np.frombuffer(data, spec.dtype.newbyteorder("<")).reshape(shape)


def check_bools(
    data: bytes | memoryview, dtype: np.dtype[np.generic], place: str
) -> None:
    """Check that the bytes of bools are 0 or 1; other dtypes may have any bytes.

    Raises:
        BadInput: one is neither.
    """
    if dtype.kind == "b":
        largest = np.frombuffer(data, np.uint8).max(initial=0)
        if largest > 1:
            raise BadInput(f"{place}: a bool is 0 or 1, given {largest}")


def check_equal_rows(inputs: Mapping[str, Sized], place: str) -> None:
    """Check that all inputs have the same number of rows.

    `place` is the format of an input's place in the request, by its name.

    Raises:
        BadInput: two differ.
    """
    for one, other in itertools.pairwise(inputs):
        rows, others = len(inputs[one]), len(inputs[other])
        if rows != others:
            raise BadInput(
                f"{place.format(one)} has {rows} rows and {place.format(other)} "
                f"{others}; rows run in batches, so the first dimensions must be equal"
            )


def check_narrower(inputs: Tensors, signature: Signature) -> None:
    """Check that the model's own dtypes have finite values for all finite ones.

    Raises:
        BadInput: one does not; the text has the input's name and the value's place.
    """
    for spec in signature.inputs:
        if spec.narrower:
            array = inputs[spec.name]
            lost = np.isfinite(array) & (np.abs(array) >= _INFINITE_FROM[spec.narrower])
            check_range(lost, array, spec.narrower, f"input {spec.name!r}")


def check_range(
    lost: npt.NDArray[np.bool_], array: Array, dtype: str, place: str, suffix: str = ""
) -> None:
    """Check that no value is marked as lost in a conversion to `dtype`.

    Raises:
        BadInput: one is; the text has the place of the first.
    """
    for where in np.argwhere(lost):
        value = array[tuple(where)]
        row, *inner = where
        at = f"{place}[{row}]{suffix}" + "".join(f"[{index}]" for index in inner)
        raise BadInput(f"{at}: {value} is out of range for {dtype}")
