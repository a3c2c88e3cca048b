"""Fit an array that a client sent to what a model takes, without surprises.

TensorFlow Serving's strictness: a float input takes integers and floats, an
integer input integers within its range, a bool input bools, a string input strings,
and nothing is ever wrapped, truncated or read out of a string.
"""

import numpy as np
import numpy.typing as npt

from app.engines.base import Array, TensorSpec
from app.errors import BadInput, Unsupported

_TAKES = {"f": "fiu", "i": "iu", "u": "iu", "b": "b", "O": "O"}


def type_name(dtype: np.dtype[np.generic]) -> str:
    """The dtype as people call it: strings are "string", not "object"."""
    return "string" if dtype.kind == "O" else str(dtype)


def check_carried(name: str, dtype: np.dtype[np.generic]) -> None:
    """Refuse what JSON has no values for, such as complex numbers.

    Raises:
        Unsupported: the text says which input or output it is.
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
        # Invalid: a NaN of the signalling kind, which becomes a quiet one.
        with np.errstate(over="raise", invalid="ignore"):
            cast = array.astype(spec.dtype)
    except FloatingPointError:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(spec.dtype)
        _check_range(np.isinf(cast) & np.isfinite(array), array, spec, place, suffix)
    if spec.dtype.kind in "iu":
        # An integer out of range wraps.
        _check_range(cast != array, array, spec, place, suffix)
    return cast


def _check_range(
    lost: npt.NDArray[np.bool_], array: Array, spec: TensorSpec, place: str, suffix: str
) -> None:
    for where in np.argwhere(lost):
        value = array[tuple(where)]
        row, *inner = where
        at = f"{place}[{row}]{suffix}" + "".join(f"[{index}]" for index in inner)
        raise BadInput(f"{at}: {value} is out of range for {spec.dtype}")
