"""Nested lists, as JSON gives them, to an array of the dtype that a model takes.

All values are read at once; only when something about them is odd does a walk look for
the place to name.
"""

import itertools
import json
import math
import struct
from typing import Any

import numpy as np

from app.codec import strings
from app.codec.fit import check_carried, fit, type_name
from app.engines.base import Array, TensorSpec
from app.errors import BadInput

# What struct calls the dtypes of numbers.
_CODES = {np.dtype(code): code for code in "efdbhiqBHIQ"}


def read(
    rows: list[Any], spec: TensorSpec, place: str, suffix: str, *, has_bools: bool
) -> Array:
    """Read rows (rows, *shape) in the input's dtype; numbers may be read-only.

    `has_bools` says that there may be a bool among the values, which would pass for a
    number.

    Raises:
        BadInput: a value or a shape that does not fit; the text begins with `place`,
            the number of the row, and `suffix`.
        Unsupported: JSON can't carry the input's dtype.
    """
    array = None
    if spec.dtype.kind == "O":
        array = _strings_at_once(rows, spec)
    elif not has_bools:
        array = _numbers_at_once(rows, spec)
    if array is not None:
        return array
    check_carried(spec.name, spec.dtype)
    shape = spec.shape
    for number, row in enumerate(rows):
        # The first row settles the free sizes for all.
        shape = _walk(row, shape, spec, f"{place}[{number}]{suffix}")
    # All values are right. Large integers need to be told their type.
    array = np.array(rows, np.float64 if spec.dtype.kind == "f" else spec.dtype)
    return fit(array, spec, place, suffix)


def _numbers_at_once(rows: list[Any], spec: TensorSpec) -> Array | None:
    """The values as struct packs them, unless something about them is odd.

    It takes no text for a number and no fraction for an integer, and refuses what is
    out of range. np.array takes three times as long, as it looks for a dtype first.
    """
    code = _CODES.get(spec.dtype)
    if code is None:
        return None
    innermost, shape = [rows], [len(rows)]
    for wanted in spec.shape:
        innermost = list(itertools.chain.from_iterable(innermost))
        if set(map(type, innermost)) != {list}:
            return None
        size, *others = set(map(len, innermost))
        if others or wanted not in (None, size):
            return None
        shape.append(size)
    # In standard sizes ("="): in native ones 1e300 is an infinite float32.
    pack = struct.Struct(f"={shape[-1]}{code}").pack
    try:
        packed = b"".join([pack(*values) for values in innermost])
    except (struct.error, OverflowError):
        return None
    return np.frombuffer(packed, spec.dtype).reshape(shape)


def _strings_at_once(rows: list[Any], spec: TensorSpec) -> Array | None:
    try:
        array = np.array(rows, object)
        if not spec.accepts(array.shape[1:]):
            return None
        leaves = [strings.to_bytes(value) for value in array.flat]
    except (TypeError, ValueError):
        return None
    array.reshape(-1)[:] = leaves
    return array


def _walk(
    value: Any, shape: tuple[int | None, ...], spec: TensorSpec, place: str
) -> tuple[int | None, ...]:
    """Raise at the first value that does not fit; return the shape, sizes settled."""
    if not shape:
        _check_leaf(value, spec, place)
        return shape
    if not isinstance(value, list):
        raise BadInput(f"{place}: expected a list, given {_shown(value)}")
    size, inner = shape[0], shape[1:]
    if size is not None and len(value) != size:
        raise BadInput(
            f"{place}: expected {size} values, given {len(value)}; a row has shape "
            f"{spec.shape_text()}"
        )
    for index, element in enumerate(value):
        inner = _walk(element, inner, spec, f"{place}[{index}]")
    return (len(value), *inner)


def _check_leaf(value: Any, spec: TensorSpec, place: str) -> None:
    kind = spec.dtype.kind
    if kind in "iu" and _is_out_of_range(value, spec.dtype):
        raise BadInput(f"{place}: {value} is out of range for {spec.dtype}")
    if kind == "O":
        fits = isinstance(value, str) or _is_good_b64(value, place)
    elif isinstance(value, bool):
        fits = kind == "b"
    elif isinstance(value, int):
        fits = kind in "fiu"
    else:
        fits = isinstance(value, float) and kind == "f"
    if not fits:
        wanted = type_name(spec.dtype)
        raise BadInput(f"{place}: expected {wanted}, given {_shown(value)}")


def _is_out_of_range(value: Any, dtype: np.dtype[np.generic]) -> bool:
    """Say so of an integer; of more than 64 bits, orjson has made it a float."""
    if isinstance(value, float):
        is_integer = 1 << 63 <= abs(value) < math.inf
    else:
        is_integer = isinstance(value, int)
    limits = np.iinfo(dtype.str)
    return is_integer and not limits.min <= value <= limits.max


def _is_good_b64(value: Any, place: str) -> bool:
    if not strings.is_b64(value):
        return False
    try:
        strings.to_bytes(value)
    except ValueError as error:
        raise BadInput(f"{place}: not base64: {error}") from None
    return True


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return json.dumps(value)
