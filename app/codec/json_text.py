"""JSON as TensorFlow Serving speaks it: with NaN and Infinity, both ways.

orjson does the work. It knows neither token, so what holds one goes through the
standard library.
"""

import json
from typing import Any

import numpy as np
import orjson

from app.engines.base import Array
from app.errors import BadInput


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
        return json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON: {error}") from error


def dumps(value: Any) -> bytes:
    """Write JSON; arrays may stand anywhere, in C order, all values finite."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def dumps_any_float(value: Any) -> bytes:
    """Write JSON in which arrays may hold NaN and infinities, as bare tokens."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(array: Array) -> Any:
    if array.dtype.kind != "f":
        return array.tolist()
    # By way of text, 0.2 as float32 stays 0.2 and is not 0.20000000298.
    return array.astype(str).astype(np.float64).tolist()
