"""JSON as TensorFlow Serving speaks it: with NaN and Infinity, both ways.

orjson does the work. What it refuses gets a second reading by the standard library,
which knows these tokens, and stops where the value ends: as in TensorFlow Serving,
text behind it does not matter.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import orjson

from app.codec.memory_budget import MemoryBudget
from app.engines.base import Array
from app.errors import BadInput

# Any double has fewer than 310 digits, and a number of 308 is always a double.
_SURELY_FINITE_DIGITS = 308
# As objects a body takes up to thirty times its bytes; the smaller ones don't count.
_SMALL_BYTES = 1 << 20
_BUDGET_BYTES = 64 << 20
_budget = MemoryBudget(_BUDGET_BYTES, 10, "large JSON bodies")
_BLANKS = " \t\r\n"
# A string, open ones too so that no quote is looked at twice, or the token.
_STRING_OR_INF = re.compile(r'"(?:[^"\\]|\\.?)*+"?|\bInf\b', re.DOTALL)


def loaded(body: bytes) -> AbstractContextManager[Any]:
    """Parse a client's body; what it becomes is in use until the block ends.

    Raises:
        BadInput: as `loads`.
        Unavailable: too many large ones are in use.
    """
    # A generator takes longer than to parse a small body.
    return nullcontext(loads(body)) if len(body) <= _SMALL_BYTES else _in_turn(body)


@contextmanager
def _in_turn(body: bytes) -> Iterator[Any]:
    with _budget.lend(min(len(body), _BUDGET_BYTES)):
        yield loads(body)


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
    body = dumps(value)
    # What is not finite has become null. One letter of it, which numbers have not, is
    # found many times as fast; where a string says so, nothing changes.
    if b"u" in body and b"null" in body:
        return orjson.dumps(value, default=_with_tokens)
    return body


def dumps_loaded(value: Any) -> bytes:
    """Write again what `loads` has read."""
    return json.dumps(value, separators=(",", ":")).encode()


def in_own_width(array: Array) -> Array:
    """The numbers as they have to be given to be written with no digit too many.

    To orjson 0.1 as float16 is the float32 0.099975586.
    """
    if array.dtype != np.float16:
        return array
    wide: Array = _shortest_halves()[array.view(np.uint16)]
    return wide


@cache
def _shortest_halves() -> Array:
    """For the bits of each float16, the double that is written as it."""
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
