"""JSON of objects of the user's own code: NumPy's values, bytes, large integers."""

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson

from app.codec import strings
from app.engines.base import Array

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
# orjson nests 254 deep.
_MAX_DEPTH = 250
# The integers that orjson writes.
_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 64) - 1
# Of what an error shows.
_PLACE_CHARS, _KEY_CHARS = 200, 40
_ADVICE = {
    **dict.fromkeys(("set", "frozenset"), "it has no order: give a sorted list"),
    "complex": "give a list of its real and imag",
    "Decimal": "give its float or str",
    "int": "it has more than 4300 digits",
    "str": "it has half a surrogate pair, which is no text",
    "timedelta": "give its total_seconds()",
}
_OTHER_ADVICE = "give a number, text, bytes, an array, a list, a dict or None"


def dumps(value: Any, place: str = "value") -> bytes:
    """Return JSON of any objects: arrays too, bytes as text or {"b64": ...}.

    NaN and infinities are null. Dates and times are text (ISO 8601).

    Raises:
        TypeError: JSON can't hold an object; the text has its place, which begins with
            `place`, and what to give instead.
    """
    try:
        return orjson.dumps(value, default=_default, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Several times as slow, but it knows more types, the places, and keys that are
        # not text, two of which may have the same text.
        return orjson.dumps(_plain(value, place, 0), option=_OPTIONS)


def lines(values: Iterable[Any]) -> list[bytes]:
    """Return the JSON of each value, or nothing if JSON can't hold one of them.

    Bytes are {"b64": ...}, also where they are text, and NaN is written as it is.
    """
    try:
        return [json.dumps(value, default=_in_lines).encode() for value in values]
    except (TypeError, ValueError, RecursionError):
        return []


def _in_lines(value: Any) -> Any:
    if isinstance(value, bytes):
        return strings.b64(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def _default(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _of_numpy(value)
    if isinstance(value, bytes):
        return strings.from_bytes(value)
    raise TypeError


def _of_numpy(value: Array | np.generic) -> Any:
    """Return an array, or a scalar of NumPy, as orjson takes it, or as objects."""
    kind = value.dtype.kind
    if kind in "mM":
        # Of nanoseconds, tolist makes integers.
        return value.astype(f"{kind}8[us]").tolist()
    if kind == "f" and value.dtype.itemsize > np.dtype(np.float64).itemsize:
        value = value.astype(np.float64)
    if kind not in "biuf" or isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value
    if not value.ndim:
        return value[()]
    return np.ascontiguousarray(value, value.dtype.newbyteorder("="))


def _plain(value: Any, place: str, depth: int) -> Any:
    """Return a value of objects that orjson knows."""
    if depth > _MAX_DEPTH:
        raise TypeError(
            f"{place[:_KEY_CHARS]}... is nested more than {_MAX_DEPTH} deep, or in "
            "itself"
        )
    if isinstance(value, np.ndarray | np.generic):
        value = _of_numpy(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, place, depth)
    if isinstance(value, list | tuple):
        return [
            _plain(each, f"{place}[{number}]", depth + 1)
            for number, each in enumerate(value)
        ]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(
                getattr(value, field.name), f"{place}.{field.name}", depth + 1
            )
            for field in dataclasses.fields(value)
        }
    return _leaf(value, place)


def _plain_mapping(value: Mapping[Any, Any], place: str, depth: int) -> dict[Any, Any]:
    """Return a dict of objects that orjson knows.

    Raises:
        TypeError: two keys have the same text, such as 1 and "1".
    """
    found = {}
    for key, each in value.items():
        name = _key(key, place)
        if name in found:
            raise TypeError(
                f"{place[:_PLACE_CHARS]} has two keys that JSON writes as "
                f"{_shown(name)}: give all keys as text, each once"
            )
        found[name] = _plain(each, f"{place}[{_shown(key)}]", depth + 1)
    return found


def _leaf(value: Any, place: str) -> Any:
    """Return a value without parts as orjson knows it."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return strings.from_bytes(bytes(value))
    if isinstance(value, float):
        return float(value)
    try:
        if isinstance(value, int) and not _MIN_INTEGER <= value <= _MAX_INTEGER:
            return orjson.Fragment(str(int(value)))
        # An array was made above.
        orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        advice = _ADVICE.get(kind, _OTHER_ADVICE)
        raise TypeError(
            f"{place[:_PLACE_CHARS]} is of type {kind}: {advice}"
        ) from error
    return value


def _key(key: Any, place: str) -> Any:
    """Return a key of a dict as orjson knows it."""
    found = key.value if isinstance(key, enum.Enum) else key
    if isinstance(found, np.generic):
        found = _of_numpy(found)
    if isinstance(found, np.generic):
        found = found.item()
    try:
        if isinstance(found, bytes):
            return found.decode()
        if isinstance(found, int) and not isinstance(found, bool):
            return str(int(found))
        orjson.dumps({found: None}, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{place[:_PLACE_CHARS]} has the key {_shown(key)} of type "
            f"{type(key).__name__}: give text or a number"
        ) from error
    return found


def _shown(key: Any) -> str:
    try:
        return repr(key)[:_KEY_CHARS]
    except Exception:  # of the user's own class, or too many digits
        return f"({type(key).__name__})"
