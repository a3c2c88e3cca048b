"""Long arrays of numbers, cut out of JSON text before the rest becomes objects.

Parsed, JSON takes up to thirty times its bytes. So arrays of numbers stay text until
their dtype and shape are known, and the rest may have a limited number of parts.
"""

import codecs
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.codec.bounds import Check, unchecked

# Shorter arrays become objects: cutting them out would take longer.
_MIN_ARRAY_BYTES = 256
# Shorter pieces between strings and braces have too few parts to be counted.
_MIN_COUNTED_BYTES = 8
_CHECK_EVERY_PARTS = 1 << 12
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
# The inside of a string, which is read in windows: other threads wait for each.
_INNER = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_WINDOW_BYTES = 1 << 18
_MARKS = (b'"', b"{", b"}")
# Bytes that are counted at a time.
_COUNTED_BYTES = 1 << 20
# The upper bits of all bytes of a character in UTF-8 but its first.
_CONTINUATION, _UPPER_BITS = 0x80, 0xC0
# What stands between a key and its array, and behind the array.
_BEFORE = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(?=\[)")
_BEHIND = re.compile(rb"[ \t\r\n]*,?[ \t\r\n]*")
_VALUE = re.compile(rb"[^\[\], \t\r\n]")
# Begins the strings that stand for arrays; no client knows it.
_SECRET = secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The text of a JSON array without strings and objects: body[begin:end]."""

    body: bytes
    begin: int
    end: int


class Split:
    """JSON text in which strings stand for the arrays that were cut out."""

    def __init__(self, body: bytes, arrays: list[Numbers]) -> None:
        """Cut the arrays, in their order, out of the body."""
        parts, at = [], 0
        self._body = body
        self._arrays: dict[str, Numbers] = {}
        for array in arrays:
            name = f"{_SECRET}{len(self._arrays)}"
            self._arrays[name] = array
            parts += [body[at : array.begin], f'"{name}"'.encode()]
            at = array.end
        self.text = b"".join([*parts, body[at:]]) if arrays else body

    def restored(self, value: Any) -> Any:
        """Return the value of the text, with the arrays in it."""
        left = [value] if self._arrays else []
        while left:
            container = left.pop()
            items = container.items() if isinstance(container, dict) else ()
            for key, item in items:
                if isinstance(item, str):
                    container[key] = self._arrays.get(item, item)
                elif isinstance(item, dict | list):
                    left.append(item)
            if isinstance(container, list):
                left += [item for item in container if isinstance(item, dict | list)]
        return value

    def offset(self, position: int) -> int:
        """Return where a position of the text is in the body, both in characters."""
        text_end = at = left_out = 0
        for name, array in self._arrays.items():
            added = added_bytes(self._body, at, array.begin)
            placeholder = len(name) + len('""')
            text_end += array.begin - at - added + placeholder
            if text_end > position:
                break
            left_out += array.end - array.begin - placeholder
            at = array.end
        return position + left_out


def added_bytes(body: bytes, begin: int, end: int, check: Check = unchecked) -> int:
    """Return how many bytes more than characters a part of a body in UTF-8 has.

    A byte order mark at its start, which is no character of JSON, has three more.

    Raises:
        BasketError: `check` raised it.
    """
    added = 0
    for piece in _pieces(body, begin, end):
        check()
        added += int(np.count_nonzero((piece & _UPPER_BITS) == _CONTINUATION))
    return added + (begin == 0 and body.startswith(codecs.BOM_UTF8))


def split(body: bytes, max_parts: int, check: Check) -> Split | None:
    """Cut the long arrays of numbers that are values of keys out of JSON text.

    The text need not be valid: it is checked when its parts are parsed. Return None if
    the rest has more parts than that: strings, braces, and commas and lists.

    Raises:
        BasketError: `check` raised it.
    """
    arrays, parts = [], 0
    for number, (begin, end) in enumerate(_between_marks(body)):
        if number % _CHECK_EVERY_PARTS == 0:
            check()
        array = _array(body, begin, end) if end - begin >= _MIN_ARRAY_BYTES else None
        if array is not None:
            arrays.append(array)
        elif end - begin >= _MIN_COUNTED_BYTES:
            parts += body.count(b",", begin, end) + body.count(b"[", begin, end)
        if number + parts > max_parts:
            return None
    return Split(body, arrays)


def _between_marks(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the pieces between strings and braces."""
    begin, following = 0, dict.fromkeys(_MARKS, -1)
    while begin <= len(body):
        for mark, at in following.items():
            if at < begin:
                found = body.find(mark, begin)
                following[mark] = len(body) if found < 0 else found
        end = min(following.values())
        yield begin, end
        is_string = end < len(body) and body[end] == _QUOTE
        begin = _string_end(body, end + 1) if is_string else end + 1


def _string_end(body: bytes, begin: int) -> int:
    """Return the place behind a string's closing quote."""
    quote = body.find(_QUOTE, begin)
    if quote >= 0 and body[quote - 1] == _BACKSLASH:
        quote = begin
        while (inner := _INNER.match(body, quote, quote + _WINDOW_BYTES)) and inner[0]:
            quote = inner.end()
        if not body.startswith(b'"', quote):
            quote = -1
    return len(body) + 1 if quote < 0 else quote + 1


def _array(body: bytes, begin: int, end: int) -> Numbers | None:
    """Return the array that a piece has as the value of a key, if it has no more."""
    before = _BEFORE.match(body, begin, end)
    close = body.rfind(b"]", begin, end)
    if before is None or not _BEHIND.fullmatch(body, close + 1, end):
        return None
    span = before.end(), close + 1
    if _count(body, b"[", *span) != _count(body, b"]", *span):
        return None
    found = Numbers(body, *span)
    return found if has_values(found) else None


def has_values(numbers: Numbers) -> bool:
    """Return whether an array has any value in its lists."""
    return _VALUE.search(numbers.body, numbers.begin, numbers.end) is not None


def _count(body: bytes, mark: bytes, begin: int, end: int) -> int:
    """Return how often a byte occurs in a long part of a body.

    `bytes.count` looks at one byte after the other, NumPy at many at once.
    """
    return sum(
        int(np.count_nonzero(piece == ord(mark))) for piece in _pieces(body, begin, end)
    )


def _pieces(body: bytes, begin: int, end: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a part of a body as bytes (size,) of uint8, of a bounded size each."""
    text = np.frombuffer(body, np.uint8)
    for at in range(begin, end, _COUNTED_BYTES):
        yield text[at : min(at + _COUNTED_BYTES, end)]
