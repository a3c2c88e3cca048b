"""Nested lists, as JSON gives them, to an array of the dtype that a model takes.

All values are read at once; only when something about them is odd is the place to name
looked for.
"""

import itertools
import json
import math
import struct
from typing import Any, NoReturn, TypeAlias

import numpy as np

from app.codec import strings
from app.codec.fit import check_carried, fit, type_name
from app.engines.base import Array, TensorSpec
from app.errors import BadInput

# Of a value in lists; None is a free size.
_Shape: TypeAlias = tuple[int | None, ...]
# What struct calls the dtypes of numbers.
_CODES = {np.dtype(code): code for code in "efdbhiqBHIQ"}
# What JSON gives for a kind of dtype.
_TYPES: dict[str, set[type]] = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool}}


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
    if _settled(rows, spec.shape, spec) is None:
        _refuse(rows, spec.shape, spec, place, suffix)
    # All values are right. Large integers need to be told their type.
    array = np.array(rows, np.float64 if spec.dtype.kind == "f" else spec.dtype)
    return fit(array, spec, place, suffix)


def _numbers_at_once(rows: list[Any], spec: TensorSpec) -> Array | None:
    """The values as struct packs them, unless something about them is odd.

    It takes no text for a number and no fraction for an integer, and refuses what is
    out of range. np.array takes three times as long, as it looks for a dtype first.
    """
    code = _CODES.get(spec.dtype)
    innermost, sizes = _innermost(rows, spec.shape) or ([], ())
    if code is None or not innermost:
        return None
    shape = [len(rows), *(size or 0 for size in sizes)]
    # In standard sizes ("="): in native ones 1e300 is an infinite float32.
    pack = struct.Struct(f"={shape[-1]}{code}").pack
    try:
        packed = b"".join([pack(*values) for values in innermost])
    except (struct.error, OverflowError):
        return None
    return np.frombuffer(packed, spec.dtype).reshape(shape)


def _innermost(
    values: list[Any], shape: _Shape
) -> tuple[list[list[Any]], _Shape] | None:
    """The lists that hold values of this shape, and it, its free sizes settled.

    None: the lists are not nested so.
    """
    lists, settled = [values], []
    for size in shape:
        lists = list(itertools.chain.from_iterable(lists))
        if not set(map(type, lists)) <= {list}:
            return None
        sizes = set(map(len, lists))
        known = next(iter(sizes), None) if size is None else size
        if not sizes <= {known}:
            return None
        settled.append(known)
    return lists, tuple(settled)


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


def _settled(values: list[Any], shape: _Shape, spec: TensorSpec) -> _Shape | None:
    """The shape of each of these values, free sizes settled, if all of them fit."""
    found = _innermost(values, shape)
    if found is None:
        return None
    lists, settled = found
    return settled if _fit(list(itertools.chain.from_iterable(lists)), spec) else None


def _fit(leaves: list[Any], spec: TensorSpec) -> bool:
    kind = spec.dtype.kind
    if kind == "O":
        return _are_strings(leaves)
    if not set(map(type, leaves)) <= _TYPES[kind]:
        return False
    if kind not in "iu" or not leaves:
        return True
    limits = np.iinfo(spec.dtype.str)
    return bool(limits.min <= min(leaves) and max(leaves) <= limits.max)


def _are_strings(leaves: list[Any]) -> bool:
    try:
        for leaf in leaves:
            strings.to_bytes(leaf)
    except (TypeError, ValueError):
        return False
    return True


def _refuse(
    values: list[Any], shape: _Shape, spec: TensorSpec, place: str, suffix: str = ""
) -> NoReturn:
    """Raise at the first of values that do not all fit, found by halving them.

    Those before it settle the free sizes.
    """
    begin, end = 0, len(values)
    while end - begin > 1:
        middle = (begin + end) // 2
        settled = _settled(values[begin:middle], shape, spec)
        if settled is None:
            end = middle
        else:
            begin, shape = middle, settled
    odd, place = values[begin], f"{place}[{begin}]{suffix}"
    if not shape:
        _refuse_leaf(odd, spec, place)
    if not isinstance(odd, list):
        raise BadInput(f"{place}: expected a list, given {_shown(odd)}")
    size, *inner = shape
    if size is not None and len(odd) != size:
        raise BadInput(
            f"{place}: expected {size} values, given {len(odd)}; a row has shape "
            f"{spec.shape_text()}"
        )
    _refuse(odd, tuple(inner), spec, place)


def _refuse_leaf(leaf: Any, spec: TensorSpec, place: str) -> NoReturn:
    kind = spec.dtype.kind
    if kind in "iu" and _is_beyond(leaf, spec.dtype):
        raise BadInput(f"{place}: {leaf} is out of range for {spec.dtype}")
    if kind == "O" and strings.is_b64(leaf):
        try:
            strings.to_bytes(leaf)
        except ValueError as error:
            raise BadInput(f"{place}: not base64: {error}") from None
    wanted = type_name(spec.dtype)
    raise BadInput(f"{place}: expected {wanted}, given {_shown(leaf)}")


def _is_beyond(leaf: Any, dtype: np.dtype[np.generic]) -> bool:
    """Say so of an integer that does not fit.

    Of one with more than 64 bits orjson has made a float, which may be the lower limit.
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
