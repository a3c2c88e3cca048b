"""Objects of the user's own code as rows: in arrays, and as bytes between processes."""

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np

from app.engines.base import Array
from app.errors import ModelFailed
from app.settings.model_files import SERVICE_FILE

# Of msgpack's extension types.
_ARRAY, _INTEGER = 1, 2


def array_of(values: Sequence[Any]) -> Array:
    """Return an array with an object in each place, whatever the objects are."""
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def bytes_of(values: Any) -> Array:
    """Return text, or bytes, nested in any way as an array of bytes.

    Raises:
        TypeError: a value is neither.
    """
    # Without the dtype NumPy would make text of numbers, and cut zero bytes off.
    array = np.asarray(values, object)
    leaves = []
    for leaf in array.ravel().tolist():
        if not isinstance(leaf, str | bytes):
            raise TypeError(f"a {type(leaf).__name__} is neither text nor bytes")
        leaves.append(leaf.encode() if isinstance(leaf, str) else leaf)
    return array_of(leaves).reshape(array.shape)


def pack(value: Any, function: str) -> bytes:
    """Return a value as bytes; lists, dicts, text, bytes, numbers and arrays can be.

    Raises:
        ModelFailed: another object, which `function` of service.py gave.
    """
    try:
        packed: bytes = msgpack.packb(value, default=_extension)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelFailed(
            f"{SERVICE_FILE}: {function} gave what can't cross between processes "
            f"({str(error)[:100]}): give numbers, text, bytes, arrays, lists and dicts"
        ) from error
    return packed


def unpack(data: bytes) -> Any:
    """Return the value of `pack`; tuples have become lists.

    Raises:
        ModelFailed: a dict has tuples as keys.
    """
    try:
        return msgpack.unpackb(data, ext_hook=_value, strict_map_key=False)
    except TypeError as error:
        raise ModelFailed(
            f"{SERVICE_FILE} gave a dict whose keys can't cross between processes: "
            "give text or numbers as keys"
        ) from error


def _extension(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not _is_of_objects(value):
        head = msgpack.packb([value.dtype.str, value.shape])
        return msgpack.ExtType(_ARRAY, head + value.tobytes())
    if isinstance(value, np.longdouble):
        return float(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, int):
        # Of more than 64 bits.
        return msgpack.ExtType(_INTEGER, str(value).encode())
    raise TypeError(f"a {type(value).__name__}")


def _is_of_objects(array: Array) -> bool:
    """Return whether an array is more than the bytes of its values."""
    is_masked = isinstance(array, np.ma.MaskedArray)
    return is_masked or array.dtype.hasobject or array.dtype.names is not None


def _value(code: int, data: bytes) -> Any:
    if code == _INTEGER:
        return int(data)
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    dtype, shape = unpacker.unpack()
    array = np.frombuffer(data, np.dtype(dtype), offset=unpacker.tell())
    return array.reshape(shape).copy()
