"""A piece of a JSON array of numbers: its brackets, and its values.

A piece begins and ends at a comma of the array, so that no number is cut.
"""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import simdjson

from app.codec import json_text
from app.codec.json_arrays.split import Numbers
from app.engines.base import Array
from app.errors import BadInput

_USUAL_BYTES = 1 << 16
# The most bytes of a piece.
MAX_BYTES = 1 << 20
_BLANKS = b" \t\r\n"
_DIGITS = b"0123456789+-.eE"
_NOT_BRACKETS = _DIGITS + _BLANKS
_BRACKETS_TO_BLANKS = bytes.maketrans(b"[]", b"  ")
_DIGITS_TO_ZEROS = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
# Words that stand for a value, and a number of the same length. Blanks around it keep
# it from joining a digit.
_FLOAT_WORDS = (
    (b"-Infinity", b" 1       "),
    (b"Infinity", b" 1      "),
    (b"-Inf", b" 1  "),
    (b"Inf", b" 1 "),
    (b"NaN", b" 0 "),
)
_BOOL_WORDS = ((b"true", b" 1  "), (b"false", b" 0   "))
# A digit would pass for a bool, so it becomes what is no number.
_DIGITS_TO_DOTS = bytes.maketrans(b"0123456789", b"." * 10)
# simdjson's code and the dtype of the values that it gives, by the kind of an input.
_PARSED = {
    "f": ("d", np.float64),
    "i": ("i", np.int64),
    "u": ("u", np.uint64),
    "b": ("i", np.int64),
}
KINDS = _PARSED.keys()


class _ThreadParser(threading.local):
    """One parser per thread, as a parser holds one text at a time."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser(max_capacity=2 * MAX_BYTES)


_thread = _ThreadParser()


def cut(numbers: Numbers, rank: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces between the array's brackets, and where each begins.

    They end at the end of an element, of `rank` nested lists, if that is near.

    Raises:
        BadInput: a piece would be too long.
    """
    body, begin, end = numbers.body, numbers.begin + 1, numbers.end - 1
    while begin <= end:
        stop = end
        if end - begin > _USUAL_BYTES:
            stop = _end(body, begin, end, b"]" * rank)
        yield begin, body[begin:stop]
        begin = stop + 1


def _end(body: bytes, begin: int, end: int, closing: bytes) -> int:
    """Return the place of the comma, or the array's end, at which a piece ends."""
    stop = body.rfind(closing + b",", begin, begin + _USUAL_BYTES)
    if stop >= 0:
        return stop + len(closing)
    stop = body.rfind(b",", begin, begin + _USUAL_BYTES)
    if stop < 0:
        stop = body.find(b",", begin, min(begin + MAX_BYTES, end))
    if stop < 0 and end - begin > MAX_BYTES:
        raise BadInput(
            f"JSON Parse error: no comma in {MAX_BYTES} characters at offset: {begin}"
        )
    return end if stop < 0 else stop


def without_words(piece: bytes, kind: str) -> bytes:
    """Return a piece of the same length in which digits stand for NaN, true and so on.

    `kind` is that of the input's dtype.
    """
    if kind == "b":
        piece = piece.translate(_DIGITS_TO_DOTS)
        for word, digit in _BOOL_WORDS:
            piece = piece.replace(word, digit)
    elif kind == "f" and (b"N" in piece or b"I" in piece):
        for word, digit in _FLOAT_WORDS:
            piece = piece.replace(word, digit)
    return piece


def brackets(piece: bytes) -> bytes:
    """Return a piece's brackets and commas, and all that has no place in numbers."""
    return piece.translate(None, _NOT_BRACKETS)


def has_number_outside(piece: bytes) -> bool:
    """Return whether a number stands right before "[" or right behind "]"."""
    marks = piece.translate(_DIGITS_TO_ZEROS, _BLANKS)
    # Each is searched from the side from which its bracket, which is rare, comes first.
    return marks.find(b"0[") >= 0 or marks.rfind(b"]0") >= 0


def values(piece: bytes, text: bytes, kind: str) -> Array | None:
    """Return the values of a piece as a flat array of the largest dtype of that kind.

    `text` is the piece without words, and has whole lists, or no brackets. None:
    simdjson does not read it, as it is malformed, or has a value of another kind or an
    integer of more than 64 bits.
    """
    code, dtype = _PARSED[kind]
    try:
        array: Any = _thread.parser.parse(b"[%b]" % text)
        parsed = np.frombuffer(array.as_buffer(of_type=code), dtype)
    except (RuntimeError, TypeError, ValueError):
        return None
    has_words = kind == "f" and (b"N" in piece or b"I" in piece)
    return _with_words(parsed.copy(), piece) if has_words else parsed


def without_brackets(text: bytes) -> bytes:
    """Return a piece of the same length in which blanks stand for brackets."""
    return text.translate(_BRACKETS_TO_BLANKS)


def objects(piece: bytes, text: bytes, offset: int) -> list[object]:
    """Return the values of a piece as Python has them; it begins at `offset`.

    `text` is that of `values`, which could not read it.

    Raises:
        BadInput: it is malformed.
    """
    if has_number_outside(text):
        raise BadInput("JSON Parse error: a number stands beside a list")
    flat = b"[%b]" % without_brackets(piece)
    parsed: list[object] = json_text.loads(flat, lambda place: offset + place - 1)
    return parsed


def positions(plain: bytes) -> Array:
    """Return the places of the brackets and commas of a piece without words."""
    is_digit = np.isin(np.arange(256), np.frombuffer(_NOT_BRACKETS, np.uint8))
    return np.flatnonzero(~is_digit[np.frombuffer(plain, np.uint8)])


def _with_words(doubles: Array, piece: bytes) -> Array:
    """Put NaN and infinities at their places; a value has the number of its commas.

    Leave them out if a list is empty: the reader of all pieces counts the values.
    """
    text = np.frombuffer(piece, np.uint8)
    commas = np.flatnonzero(text == ord(","))
    if len(doubles) != len(commas) + 1:
        return doubles
    nans, infinities = (np.flatnonzero(text == ord(letter)) for letter in "NI")
    doubles[np.searchsorted(commas, nans)] = np.nan
    is_negative = text[np.maximum(infinities - 1, 0)] == ord("-")
    signed = np.where(is_negative, -np.inf, np.inf)
    doubles[np.searchsorted(commas, infinities)] = signed
    return doubles
