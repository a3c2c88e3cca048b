"""Nested lists, as JSON gives them, to an array of an input's dtype.

All values are converted at once. Only if that fails, the first value or list that does
not fit is searched for, to name its place.
"""

import itertools
import json
import math
import struct
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from app.codec import strings
from app.codec.fit import check_json_dtype, fit, type_name
from app.codec.row_hint import WrongShape, wrong_shape
from app.engines.base import Array, TensorSpec
from app.errors import BadInput

# Of a nested value; None is a free size.
_Shape: TypeAlias = tuple[int | None, ...]
# The struct module's codes for the dtypes of numbers.
_CODES = {np.dtype(code): code for code in "efdbhiqBHIQ"}
# The types that JSON values for a kind of dtype have in Python.
_TYPES: dict[str, set[type]] = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool}}


def read(
    rows: list[Any], spec: TensorSpec, place: str, suffix: str, *, has_bools: bool
) -> Array:
    """Return rows (rows, *shape) in the input's dtype; numbers may be read-only.

    `has_bools` says whether a bool may be among the values: struct would take it for a
    number.

    Raises:
        BadInput: a value or a shape does not fit; the text begins with `place`, the
            number of the row, and `suffix`.
        Unsupported: JSON has no values for the input's dtype.
    """
    array = _read_at_once(rows, spec, has_bools)
    if array is not None:
        return array
    check_json_dtype(spec.name, spec.dtype)
    if _settled_shape(rows, spec.shape, spec) is None:
        try:
            _raise_first_misfit(rows, spec.shape, spec, place, suffix)
        except WrongShape as error:
            raise wrong_shape(str(error), spec, suffix) from None
    # All values fit. NumPy needs the dtype for large integers.
    array = np.array(rows, np.float64 if spec.dtype.kind == "f" else spec.dtype)
    return fit(array, spec, place, suffix)


def plain_row(row: list[Any], spec: TensorSpec) -> Array | None:
    """Return one row (*shape) of ints and floats in the input's dtype, read-only.

    None if it has other values, or does not fit.
    """
    lists, shape = _innermost([row], spec.shape) or ([], ())
    types = set(map(type, itertools.chain.from_iterable(lists)))
    if not lists or not types <= {int, float}:
        return None
    array = _pack(lists, spec.dtype)
    return None if array is None else array.reshape(shape)


def first_misfit(values: list[Any], spec: TensorSpec) -> int | None:
    """Return the place of the first value that does not fit, None if all do."""
    if _fit(values, spec):
        return None
    begin, end = 0, len(values)
    while end - begin > 1:
        middle = (begin + end) // 2
        if _fit(values[begin:middle], spec):
            begin = middle
        else:
            end = middle
    return begin


def check_row(
    value: Any, shape: _Shape, spec: TensorSpec, place: str, suffix: str, row: int
) -> None:
    """Check one row's value against a shape, which may be settled more than spec's.

    Raises:
        BadInput: it does not fit.
    """
    if _settled_shape([value], shape, spec) is None:
        try:
            _raise_first_misfit([value], shape, spec, place, suffix, row)
        except WrongShape as error:
            raise wrong_shape(str(error), spec, suffix) from None


def _innermost(rows: Any, shape: _Shape) -> tuple[list[Any], tuple[int, ...]] | None:
    """Return the lists that hold the values of `rows`, and the shape of one row.

    Free sizes of `shape` are settled by the rows. Return None if the rows are not
    nested as `shape` says, evenly.
    """
    lists, settled = [rows], []
    for size in shape:
        lists = list(itertools.chain.from_iterable(lists))
        if not set(map(type, lists)) <= {list}:
            return None
        sizes = set(map(len, lists))
        known = next(iter(sizes), 0) if size is None else size
        if not sizes <= {known}:
            return None
        settled.append(known)
    return lists, tuple(settled)


def _read_at_once(rows: list[Any], spec: TensorSpec, has_bools: bool) -> Array | None:
    """Return the array, or None if a value does not fit or there is none."""
    lists, row_shape = _innermost(rows, spec.shape) or ([], ())
    array = None
    if lists and spec.dtype.kind == "O":
        values = _to_bytes(itertools.chain.from_iterable(lists))
        array = None if values is None else np.array(values, object)
    elif lists and not has_bools:
        array = _pack(lists, spec.dtype)
    return None if array is None else array.reshape(len(rows), *row_shape)


def _pack(lists: list[list[Any]], dtype: np.dtype[np.generic]) -> Array | None:
    """Return the numbers of lists of equal length in a flat array, or None.

    struct takes no text for a number and no fraction for an integer, and refuses what
    is out of range. np.array takes three times as long, as it looks for a dtype first.
    """
    code = _CODES.get(dtype)
    if code is None:
        return None
    # In standard sizes ("="): in native ones 1e300 is an infinite float32.
    pack = struct.Struct(f"={len(lists[0])}{code}").pack
    try:
        return np.frombuffer(b"".join([pack(*values) for values in lists]), dtype)
    except (struct.error, OverflowError):
        return None


def _to_bytes(leaves: Iterable[Any]) -> list[bytes] | None:
    """Return the bytes of each string, or None if one is none."""
    try:
        return [strings.to_bytes(leaf) for leaf in leaves]
    except (TypeError, ValueError):
        return None


def _settled_shape(
    values: list[Any], shape: _Shape, spec: TensorSpec
) -> tuple[int, ...] | None:
    """Return the shape of each value, free sizes settled; None if one does not fit."""
    found = _innermost(values, shape)
    if found is None:
        return None
    lists, settled = found
    return settled if _fit(list(itertools.chain.from_iterable(lists)), spec) else None


def _fit(leaves: list[Any], spec: TensorSpec) -> bool:
    kind = spec.dtype.kind
    if kind == "O":
        return _to_bytes(leaves) is not None
    if not set(map(type, leaves)) <= _TYPES[kind]:
        return False
    if kind not in "iu" or not leaves:
        return True
    limits = np.iinfo(spec.dtype.str)
    return bool(limits.min <= min(leaves) and max(leaves) <= limits.max)


def _raise_first_misfit(
    values: list[Any],
    shape: _Shape,
    spec: TensorSpec,
    place: str,
    suffix: str = "",
    first: int = 0,
) -> NoReturn:
    """Raise BadInput for the first value that does not fit, found by bisection.

    The values before it settle the free sizes. `first` is the number of values[0].
    """
    begin, end = 0, len(values)
    while end - begin > 1:
        middle = (begin + end) // 2
        settled = _settled_shape(values[begin:middle], shape, spec)
        if settled is None:
            end = middle
        else:
            begin, shape = middle, settled
    odd, place = values[begin], f"{place}[{first + begin}]{suffix}"
    if not shape and isinstance(odd, list):
        wanted = type_name(spec.dtype)
        raise WrongShape(f"{place}: expected {wanted}, given {_shown(odd)}")
    if not shape:
        refuse_value(odd, spec, place)
    if not isinstance(odd, list):
        raise WrongShape(f"{place}: expected a list, given {_shown(odd)}")
    size, *inner = shape
    if size is not None and len(odd) != size:
        raise WrongShape(f"{place}: expected {size} values, given {len(odd)}")
    _raise_first_misfit(odd, tuple(inner), spec, place)


def refuse_value(leaf: Any, spec: TensorSpec, place: str) -> NoReturn:
    """Raise BadInput for one value that does not fit."""
    kind = spec.dtype.kind
    if kind in "iu" and _is_out_of_range(leaf, spec.dtype):
        raise BadInput(f"{place}: {leaf} is out of range for {spec.dtype}")
    if kind == "O" and strings.is_b64(leaf):
        try:
            strings.to_bytes(leaf)
        except ValueError as error:
            raise BadInput(f"{place}: not base64: {error}") from None
    wanted = type_name(spec.dtype)
    raise BadInput(f"{place}: expected {wanted}, given {_shown(leaf)}")


def _is_out_of_range(leaf: Any, dtype: np.dtype[np.generic]) -> bool:
    """Return whether a value that does not fit was sent as an integer.

    orjson makes a float of an integer of more than 64 bits; -2**63 - 1 equals the lower
    limit then.
    """
    limits = np.iinfo(dtype.str)
    if isinstance(leaf, float):
        is_integer = 1 << 63 <= abs(leaf) < math.inf
        return is_integer and not limits.min < leaf <= limits.max
    return type(leaf) is int


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return json.dumps(value)
