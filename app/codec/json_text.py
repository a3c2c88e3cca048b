"""JSON as TensorFlow Serving speaks it: with NaN and Infinity, both ways.

orjson does the work. It knows neither token, so what holds one goes through the
standard library.
"""

import json
import math
from typing import Any

import numpy as np
import orjson

from app.engines.base import Array
from app.errors import BadInput

# Any double has fewer than 310 digits, and a number of 308 is always a double.
_SURELY_FINITE_DIGITS = 308


def loads(body: bytes) -> Any:
    """Parse a body.

    Raises:
        BadInput: empty, or not JSON; the text says where.
    """
    if not body.strip():
        raise BadInput("the body is empty, expected JSON")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in body and b"Infinity" not in body:
            raise BadInput(f"the body is not JSON: {error}") from error
    try:
        value = json.loads(body.decode(), parse_float=_finite, parse_int=_whole)
        if b"\\u" in body:
            # Half a surrogate pair is no text; no answer could repeat it.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON: {error}") from error
    return value


def dumps(value: Any) -> bytes:
    """Write JSON; arrays may stand anywhere, in C order, all values finite."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def dumps_any_float(value: Any) -> bytes:
    """Write JSON in which arrays may hold NaN and infinities, as bare tokens."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is infinity when parsed as double")
    return number


def _whole(text: str) -> int:
    # Python takes no more than 4300 digits, and orjson none that are beyond double.
    if len(text) > _SURELY_FINITE_DIGITS:
        _finite(text)
    return int(text)


def _plain(array: Array) -> Any:
    if array.dtype.kind != "f":
        return array.tolist()
    # By way of text, 0.2 as float32 stays 0.2 and is not 0.20000000298.
    return array.astype(str).astype(np.float64).tolist()
