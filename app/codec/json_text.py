"""JSON with NaN and Infinity, both ways, as TensorFlow Serving reads and writes it.

orjson does the work. A body that orjson refuses is parsed again by the standard
library, which knows these tokens, and stops where the value ends: TensorFlow Serving
ignores the text behind it.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import orjson

from app.codec.bounds import Check, unchecked
from app.codec.json_arrays.split import Split, split
from app.codec.memory_budget import MemoryBudget
from app.engines.base import Array
from app.errors import BadInput, TooLarge

# The largest double has 309 digits, so that a number of 308 is finite.
_FINITE_DIGITS = 308
# In smaller bodies, and in small ones with a part in so many bytes, objects are cheaper
# than cutting arrays of numbers out. `loads` reads smaller ones as well as `opened`.
MIN_SPLIT_BYTES = 1 << 12
_BYTES_A_PART = 1 << 9
# In a large body, beside arrays of numbers. Each takes about a microsecond and up to a
# hundred bytes.
_MAX_PARTS = 500_000
# Parsed, a body takes up to thirty times its bytes; smaller bodies are not counted.
_SMALL_BYTES = 1 << 20
_BUDGET_BYTES = 64 << 20
_budget = MemoryBudget(_BUDGET_BYTES, 10, "large JSON bodies")
_BLANKS = " \t\r\n"
# Characters by which the standard library's word for Inf is longer.
_ADDED = len("Infinity") - len("Inf")
# A string or the token. An unclosed string matches too, so that the search is linear.
_STRING_OR_INF = re.compile(r'"(?:[^"\\]|\\.?)*+"?|\bInf\b', re.DOTALL)


def opened(
    body: bytes, check: Check = unchecked, *, ignore_tail: bool = False
) -> AbstractContextManager[Any]:
    """Return a block in which a body's value, which it gives, may be used.

    Long arrays of numbers in the value are `Numbers`, which are not read yet. With
    `ignore_tail`, text behind the value is ignored, as in TensorFlow Serving.

    Raises:
        BadInput: empty or not JSON; the text says where, in characters.
        TooLarge: too many parts.
        Unavailable: too many large bodies are in use for 10 s.
        BasketError: `check` raised it.
    """
    if len(body) < MIN_SPLIT_BYTES:
        return nullcontext(loads(body, ignore_tail=ignore_tail))
    if len(body) <= _SMALL_BYTES:
        parts = split(body, len(body) // _BYTES_A_PART, check)
        if parts is None:
            return nullcontext(loads(body, ignore_tail=ignore_tail))
        return nullcontext(_value(parts, ignore_tail))
    return _opened_large(body, check, ignore_tail)


def opened_whole(
    body: bytes, check: Check = unchecked, *, ignore_tail: bool = False
) -> AbstractContextManager[Any]:
    """As `opened`, but long arrays of numbers are lists as all others."""
    if len(body) <= _SMALL_BYTES:
        return nullcontext(loads(body, ignore_tail=ignore_tail))
    return _opened_large_whole(body, check, ignore_tail)


@contextmanager
def _opened_large_whole(body: bytes, check: Check, ignore_tail: bool) -> Iterator[Any]:
    if body.count(b",") > _MAX_PARTS:
        raise TooLarge(
            f"the JSON has more than {_MAX_PARTS} values: send less at a time"
        )
    with _budget.reserve(min(len(body), _BUDGET_BYTES), check):
        yield loads(body, ignore_tail=ignore_tail)


@contextmanager
def _opened_large(body: bytes, check: Check, ignore_tail: bool) -> Iterator[Any]:
    parts = split(body, _MAX_PARTS, check)
    if parts is None:
        raise TooLarge(
            f"the JSON has more than {_MAX_PARTS} strings, objects and lists beside "
            "lists of numbers: send fewer rows"
        )
    size = len(parts.text)
    if size <= _SMALL_BYTES:
        yield _value(parts, ignore_tail)
        return
    with _budget.reserve(min(size, _BUDGET_BYTES), check):
        yield _value(parts, ignore_tail)


def _value(parts: Split, ignore_tail: bool) -> Any:
    value = loads(parts.text, parts.offset, ignore_tail=ignore_tail)
    return parts.restored(value)


def loads(
    body: bytes, offset: Callable[[int], int] = int, *, ignore_tail: bool = False
) -> Any:
    """Return the value of a body, behind which text may be ignored.

    `offset` returns where a place in it is, for the error.

    Raises:
        BadInput: empty or not JSON; the text says where, in characters.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"JSON Parse error: {error}") from error
    value, tail = first_value(text, offset)
    if tail.strip(_BLANKS) and not ignore_tail:
        place = offset(len(text) - len(tail))
        raise BadInput(f"JSON Parse error: text follows the value at offset: {place}")
    return value


def first_value(text: str, offset: Callable[[int], int] = int) -> tuple[Any, str]:
    """Return the value at the beginning of a text, and the text behind it.

    The standard library reads it, which takes NaN, Infinity, and here Inf. `offset`
    returns where a place in the text is, for the error.

    Raises:
        BadInput: empty or not JSON; the text says where, in characters.
    """
    sent, infs = text, []
    if "Inf" in text:
        found = _STRING_OR_INF.finditer(text)
        infs = [each.start() for each in found if each[0] == "Inf"]
        text = _STRING_OR_INF.sub(_long_infinity, text)

    def place_sent(place: int) -> int:
        """Return where a place of the longer text is in the text that was sent."""
        before = sum(at + _ADDED * n < place for n, at in enumerate(infs))
        return place - _ADDED * before

    try:
        begin = len(text) - len(text.lstrip(_BLANKS))
        if begin == len(text):
            raise BadInput("JSON Parse error: The document is empty")
        value, end = _decoder.raw_decode(text, begin)
        if "\\u" in text:
            # Half a surrogate pair is not text: a response could not repeat it.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        place = offset(place_sent(error.pos))
        raise BadInput(f"JSON Parse error: {error.msg} at offset: {place}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"JSON Parse error: {error}") from error
    return value, sent[place_sent(end) :]


def dumps(value: Any) -> bytes:
    """Return JSON; finite arrays in C order may stand anywhere in the value."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def dumps_any_float(value: Any) -> bytes:
    """Return JSON in which NaN and infinities of arrays are bare tokens."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson writes null for them. Numbers have no "u", and one letter is found many
    # times as fast as a word. If only a string holds "null", the result is the same.
    if b"u" in body and b"null" in body:
        return orjson.dumps(value, default=_with_tokens)
    return body


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
