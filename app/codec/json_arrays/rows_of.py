"""The rows of a JSON array of numbers, each as text of its own."""

import itertools
import re
from typing import Any

import numpy as np

from app.codec import json_text
from app.codec.json_arrays.split import Numbers, has_values
from app.errors import BadInput, too_many_rows

_STEP = 1 << 16
_OPENING, _CLOSING, _COMMA = b"[],"
_BLANKS = b" \t\r\n"
_BLANK = re.compile(rb"[ \t\r\n]*")
_SHOWN = 40
# Longer rows without a value stay text: their lists would take much memory.
_MAX_EMPTY_BYTES = 1 << 10


def split_rows(numbers: Numbers, max_rows: int, place: str, suffix: str) -> list[Any]:
    """Return the rows of an array, whose commas outside of inner lists end them.

    They are `Numbers`, but for those without a value: lists, which have a shape, too.

    Raises:
        BadInput: a row is no list; the text begins with `place`, its number, and
            `suffix`.
        TooLarge: more than `max_rows` rows.
    """
    body, first, end = numbers.body, numbers.begin + 1, numbers.end - 1
    commas: list[int] = []
    depth = 0
    for begin in range(first, end, _STEP):
        text = np.frombuffer(body[begin : min(begin + _STEP, end)], np.uint8)
        steps = (text == _OPENING).astype(np.int32) - (text == _CLOSING)
        depths = depth + np.cumsum(steps)
        depth = int(depths[-1])
        found = np.flatnonzero((text == _COMMA) & (depths == 0))
        if len(commas) + len(found) >= max_rows:
            raise too_many_rows(max_rows)
        commas += (begin + found).tolist()
    borders = itertools.pairwise([first - 1, *commas, end])
    rows = [_stripped(body, before + 1, after) for before, after in borders]
    for number, (_, begin, end) in enumerate(rows):
        if begin == end or body[begin] != _OPENING or body[end - 1] != _CLOSING:
            shown = str(body[begin : min(end, begin + _SHOWN)], "utf-8", "replace")
            at, given = f"{place}[{number}]{suffix}", shown or "nothing"
            raise BadInput(f"{at}: expected a list, given {given}")
    return [_value(Numbers(*row)) for row in rows]


def _value(row: Numbers) -> Any:
    body, begin, end = row.body, row.begin, row.end
    if end - begin > _MAX_EMPTY_BYTES or has_values(row):
        return row
    return json_text.loads(body[begin:end], begin.__add__)


def _stripped(body: bytes, begin: int, end: int) -> tuple[bytes, int, int]:
    """Return the part of a body without blanks at its ends."""
    blank = _BLANK.match(body, begin, end)
    begin = blank.end() if blank else begin
    while end > begin and body[end - 1] in _BLANKS:
        end -= 1
    return body, begin, end
