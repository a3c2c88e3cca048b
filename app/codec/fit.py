"""Convert an array from a client to the dtype and shape that a model takes.

As strict as TensorFlow Serving: a float input takes integers and floats, an integer
input integers within its range, a bool input bools, a string input strings. No value
is wrapped, truncated or parsed out of a string.
"""

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
        _check_range(lost, array, str(spec.dtype), place, suffix)
    if spec.dtype.kind in "iu":
        # astype wraps an integer that is out of range.
        _check_range(cast != array, array, str(spec.dtype), place, suffix)
    return cast


def check_narrower(inputs: Tensors, signature: Signature) -> None:
    """Check that the model's own dtypes have finite values for all finite ones.

    Raises:
        BadInput: one does not; the text has the input's name and the value's place.
    """
    for spec in signature.inputs:
        if spec.narrower:
            array = inputs[spec.name]
            lost = np.isfinite(array) & (np.abs(array) >= _INFINITE_FROM[spec.narrower])
            _check_range(lost, array, spec.narrower, f"input {spec.name!r}")


def _check_range(
    lost: npt.NDArray[np.bool_], array: Array, dtype: str, place: str, suffix: str = ""
) -> None:
    """Raise BadInput for the first value that is marked as lost, if any is."""
    for where in np.argwhere(lost):
        value = array[tuple(where)]
        row, *inner = where
        at = f"{place}[{row}]{suffix}" + "".join(f"[{index}]" for index in inner)
        raise BadInput(f"{at}: {value} is out of range for {dtype}")
