"""JSON as TensorFlow Serving speaks it: with NaN and Infinity, both ways.

orjson does the work. What it refuses gets a second reading by the standard library,
which knows these tokens, and stops where the value ends: as in TensorFlow Serving,
text behind it does not matter.
"""

import json
import math
import re
from typing import Any

import numpy as np
import orjson

from app.engines.base import Array
from app.errors import BadInput

# Any double has fewer than 310 digits, and a number of 308 is always a double.
_SURELY_FINITE_DIGITS = 308
_BLANKS = " \t\r\n"
# A string, open ones too so that no quote is looked at twice, or the token.
_STRING_OR_INF = re.compile(r'"(?:[^"\\]|\\.?)*+"?|\bInf\b', re.DOTALL)


def loads(body: bytes) -> Any:
    """Parse a body.

    Raises:
        BadInput: empty, or not JSON; the text says where, in characters.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _loads_tolerantly(body)


def dumps(value: Any) -> bytes:
    """Write JSON; arrays may stand anywhere, in C order, all values finite."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def dumps_any_float(value: Any) -> bytes:
    """Write JSON in which arrays may hold NaN and infinities, as bare tokens."""
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def in_own_width(array: Array) -> Array:
    """The numbers as `dumps` has to be given them, to write no digit too many.

    To orjson 0.1 as float16 is the float32 0.099975586.
    """
    return _by_way_of_text(array) if array.dtype == np.float16 else array


def _loads_tolerantly(body: bytes) -> Any:
    try:
        text = body.decode("utf-8-sig")
        if "Inf" in text:
            text = _STRING_OR_INF.sub(_long_infinity, text)
        begin = len(text) - len(text.lstrip(_BLANKS))
        if begin == len(text):
            raise BadInput("JSON Parse error: The document is empty")
        value, _ = _decoder.raw_decode(text, begin)
        if "\\u" in text:
            # Half a surrogate pair is no text; no answer could repeat it.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        text = f"JSON Parse error: {error.msg} at offset: {error.pos}"
        raise BadInput(text) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"JSON Parse error: {error}") from error
    return value


def _long_infinity(found: re.Match[str]) -> str:
    return "Infinity" if found[0] == "Inf" else found[0]


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


_decoder = json.JSONDecoder(parse_float=_finite, parse_int=_whole)


def _plain(array: Array) -> Any:
    if array.dtype.kind != "f":
        return array.tolist()
    return _by_way_of_text(array).tolist()


def _by_way_of_text(array: Array) -> Array:
    # So 0.2 as float32 stays 0.2 and is not 0.20000000298.
    return array.astype(str).astype(np.float64)
