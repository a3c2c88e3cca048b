"""JSON with NaN and Infinity, both ways, as TensorFlow Serving reads and writes it.

orjson does the work. A body that orjson refuses is parsed again by the standard
library, which knows these tokens, and stops where the value ends: as in TensorFlow
Serving, text behind it is ignored.
"""

import itertools
import json
import math
import re
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import orjson

from app.codec.memory_budget import MemoryBudget
from app.engines.base import Array
from app.errors import BadInput

# The largest double has 309 digits, so that a number of 308 is finite.
_FINITE_DIGITS = 308
# Parsed, a body takes up to thirty times its bytes; smaller bodies are not counted.
_SMALL_BYTES = 1 << 20
_BUDGET_BYTES = 64 << 20
_budget = MemoryBudget(_BUDGET_BYTES, 10, "large JSON bodies")
_unbounded = nullcontext()
_BLANKS = " \t\r\n"
# A string or the token. An unclosed string matches too, so that the search is linear.
_STRING_OR_INF = re.compile(r'"(?:[^"\\]|\\.?)*+"?|\bInf\b', re.DOTALL)


def memory_for(body: bytes) -> AbstractContextManager[None]:
    """Return a block in which a body may be parsed, and its value used.

    Entering it raises Unavailable if too many large bodies are in use for 10 s.
    """
    if len(body) <= _SMALL_BYTES:
        return _unbounded
    return _budget.reserve(min(len(body), _BUDGET_BYTES))


def loads(body: bytes) -> Any:
    """Return the value of a body.

    Raises:
        BadInput: empty or not JSON; the text says where, in characters.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _loads_tolerantly(body)


def dumps(value: Any) -> bytes:
    """Return JSON; finite arrays in C order may stand anywhere in the value."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def dumps_any_float(value: Any) -> bytes:
    """Return JSON in which NaN and infinities of arrays are bare tokens."""
    body = dumps(value)
    # orjson writes null for them. Numbers have no "u", and one letter is found many
    # times as fast as a word. If only a string holds "null", the result is the same.
    if b"u" in body and b"null" in body:
        return orjson.dumps(value, default=_with_tokens)
    return body


def dumps_loaded(value: Any) -> bytes:
    """Return the JSON of a value that `loads` returned, with NaN and large integers."""
    return json.dumps(value, separators=(",", ":")).encode()


def shortest_floats(array: Array) -> Array:
    """Return an array that orjson writes in the fewest digits that its dtype needs.

    Only float16 changes: orjson writes 0.1 as the float32 0.099975586.
    """
    if array.dtype != np.float16:
        return array
    doubles: Array = _shortest_halves()[array.view(np.uint16)]
    return doubles


@cache
def _shortest_halves() -> Array:
    """Return, by the bits of a float16, the double of its shortest decimal text."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves.astype(str).astype(np.float64)


def _with_tokens(array: Array) -> orjson.Fragment:
    text = dumps(array)
    if b"null" in text:
        lost = itertools.filterfalse(math.isfinite, array.ravel().tolist())
        tokens = json.dumps(list(lost))[1:-1].encode().split(b", ")
        text = text.replace(b"null", b"%b") % tuple(tokens)
    return orjson.Fragment(text)


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
            # Half a surrogate pair is not text: a response could not repeat it.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        text = f"JSON Parse error: {error.msg} at offset: {error.pos}"
        raise BadInput(text) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"JSON Parse error: {error}") from error
    return value


def _long_infinity(found: re.Match[str]) -> str:
    return "Infinity" if found[0] == "Inf" else found[0]


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is infinity when parsed as double")
    return number


def _parse_int(text: str) -> int:
    # int() takes at most 4300 digits, and orjson no integer beyond the largest double.
    if len(text) > _FINITE_DIGITS:
        _parse_float(text)
    return int(text)


_decoder = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int)
