"""Arrays of numbers in JSON text to NumPy arrays, without a Python object for each.

The text is read in pieces: memory beside the result stays small, a check can stop the
work, and other threads run in between. The brackets and commas of all pieces together
must repeat those of one row, and the rest is a flat list of values.
"""

import math
import re
from typing import NoReturn

import numpy as np

from app.codec import json_text, nested
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.fit import check_json_dtype
from app.codec.json_arrays import pieces
from app.codec.json_arrays.row_shape import FreeShape, brackets_of, row_shape
from app.codec.json_arrays.split import Numbers, added_bytes, has_values
from app.codec.row_hint import wrong_shape
from app.engines.base import Array, TensorSpec
from app.errors import BadInput, too_many_rows

# Text that is read once more to say what is wrong with a row: the least and the most,
# and the factor between as long as the row does not end in it.
_WINDOW_BYTES, _MAX_WINDOW_BYTES, _WIDER = 1 << 10, 1 << 20, 4
# For longer slices NumPy releases the interpreter's lock, and getting it back from
# other threads takes longer than the conversion.
_SLICE = 500
_OPENING = re.compile(rb"[\[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,")


def depth(numbers: Numbers) -> int:
    """Return how many lists each value is in, besides the array."""
    opening = _OPENING.match(numbers.body, numbers.begin, numbers.end)
    assert opening is not None
    return opening[0].count(b"[") - 1


def read(
    numbers: Numbers,
    spec: TensorSpec,
    place: str,
    suffix: str = "",
    bounds: Bounds = UNBOUNDED,
) -> Array:
    """Return the rows (rows, *shape) in the input's dtype.

    Raises:
        BadInput: a value or a shape does not fit, or it is not JSON; the text begins
            with `place`, the number of the row, and `suffix`.
        TooLarge: more rows than the bounds allow.
        Unsupported: JSON has no values for the input's dtype.
        BasketError: the check of the bounds raised it.
    """
    return _Rows(numbers, spec, place, suffix, bounds).read()


class _Rows:
    """One array's rows, and how to name a place in them."""

    def __init__(
        self,
        numbers: Numbers,
        spec: TensorSpec,
        place: str,
        suffix: str,
        bounds: Bounds,
    ) -> None:
        self._numbers, self._bounds = numbers, bounds
        self._spec = spec
        self._place, self._suffix = place, suffix
        # Bytes that the text before the array has beyond its characters.
        self._added_bytes = 0
        # Settled by the first row.
        self._shape: tuple[int, ...] = ()

    def read(self) -> Array:
        """Return all rows."""
        bounds, kind = self._bounds, self._spec.dtype.kind
        shape = row_shape(self._numbers, self._spec.shape, is_bool=kind == "b")
        if kind not in pieces.KINDS or shape is None:
            self._explain(0, self._spec.shape)
        self._shape = shape
        size = math.prod(shape)
        period = brackets_of(shape) + b","
        values = self._allocate(bounds.max_rows)
        # Of all pieces so far: brackets and commas, and values.
        commas = done = 0
        for begin, piece in pieces.cut(self._numbers, len(shape)):
            bounds.check()
            text = pieces.without_words(piece, kind)
            before = commas
            commas += self._check_brackets(text, period, before)
            if commas > bounds.max_rows * len(period):
                raise too_many_rows(bounds.max_rows)
            is_whole = not (before % len(period) or commas % len(period))
            if not is_whole and (b"[" in text or b"]" in text):
                if pieces.has_number_outside(text):
                    self._explain(before // len(period), shape)
                text = pieces.without_brackets(text)
            found = self._values(begin, piece, text, done)
            self._store(found, values, done)
            done += len(found)
            if not commas % len(period) and done * len(period) != commas * size:
                self._explain(before // len(period), shape)
        rows, rest = divmod(commas, len(period))
        if rest or done != rows * size:
            self._explain(rows, shape)
        return values[:done].reshape(rows, *shape)

    def _allocate(self, max_rows: int) -> Array:
        """Return an array for as many values as the text can have."""
        size = math.prod(self._shape)
        # Rows with values, and without, may have the same brackets.
        if not size and has_values(self._numbers):
            self._explain(0, self._shape)
        most = (self._numbers.end - self._numbers.begin) // 2
        return np.empty(min(max_rows * size, most), self._spec.dtype)

    def _check_brackets(self, text: bytes, period: bytes, before: int) -> int:
        """Check a piece's brackets and commas; return their number, and one more.

        `before` are those of all pieces before it.
        """
        given = pieces.brackets(text)
        start = before % len(period)
        expected = period[start : start + len(given)]
        if len(expected) < len(given):
            rest = len(given) - len(expected)
            expected += (period * (rest // len(period) + 1))[:rest]
        if given != expected:
            one, other = (np.frombuffer(each, np.uint8) for each in (given, expected))
            odd = int(np.flatnonzero(one != other)[0])
            self._explain((before + odd) // len(period), self._shape)
        return len(given) + 1

    def _values(self, begin: int, piece: bytes, text: bytes, done: int) -> Array:
        """Return a piece's values, of which the first is number `done` of all."""
        kind = self._spec.dtype.kind
        values = pieces.values(piece, text, kind)
        if values is not None:
            return values
        try:
            objects = pieces.objects(piece, text, begin)
        except BadInput:
            # A row says more than the piece, such as which list is empty.
            self._explain(done // max(math.prod(self._shape), 1), self._shape)
        scalar = TensorSpec(self._spec.name, self._spec.dtype, ())
        odd = nested.first_misfit(objects, scalar)
        if odd is not None:
            nested.refuse_value(objects[odd], scalar, self._place_of(done + odd))
        return np.array(objects, np.float64 if kind == "f" else self._spec.dtype)

    def _store(self, found: Array, values: Array, done: int) -> None:
        """Convert values to the input's dtype.

        Raises:
            BadInput: one is out of range.
        """
        into = values[done : done + len(found)]
        is_float = self._spec.dtype.kind == "f"
        try:
            with np.errstate(over="raise"):
                for begin in range(0, len(found), _SLICE):
                    part = found[begin : begin + _SLICE]
                    into[begin : begin + _SLICE] = part
                    if not is_float and (into[begin : begin + _SLICE] != part).any():
                        raise FloatingPointError
        except FloatingPointError:
            with np.errstate(over="ignore"):
                cast = found.astype(self._spec.dtype)
            lost = np.isinf(cast) & np.isfinite(found) if is_float else cast != found
            index = int(np.flatnonzero(lost)[0])
            raise BadInput(
                f"{self._place_of(done + index)}: {found[index]} is out of range for "
                f"{self._spec.dtype}"
            ) from None

    def _place_of(self, value: int) -> str:
        """Return the place of a value by its number."""
        row, rest = divmod(value, max(math.prod(self._shape), 1))
        within = np.unravel_index(rest, self._shape) if self._shape else ()
        inner = "".join(f"[{index}]" for index in within)
        return f"{self._place}[{row}]{self._suffix}{inner}"

    def _explain(self, row: int, shape: FreeShape) -> NoReturn:
        """Raise the error of the first row that does not fit, from `row` on."""
        spec, numbers, check = self._spec, self._numbers, self._bounds.check
        check_json_dtype(spec.name, spec.dtype)
        self._added_bytes = added_bytes(numbers.body, 0, numbers.begin, check)
        begin = self._begin_of(row)
        while True:
            check()
            value, size, rest = self._row_at(begin, row)
            nested.check_row(value, shape, spec, self._place, self._suffix, row)
            begin += size
            comma = _COMMA.match(rest)
            if comma is None:
                raise self._malformed("Expecting ',' delimiter", begin)
            begin, row = begin + comma.end(), row + 1

    def _row_at(self, begin: int, row: int) -> tuple[object, int, str]:
        """Return a row's value, its number of characters, and some text behind it.

        A row is short: many rows may be read until the one that does not fit.

        Raises:
            BadInput: it is malformed, or longer than a row that fits.
        """
        at, end = begin - self._added_bytes, self._numbers.end - 1
        window, reason = _WINDOW_BYTES, ""
        while True:
            stop = min(end, begin + window)
            is_last = stop == end or window >= _MAX_WINDOW_BYTES
            text = str(self._numbers.body[begin:stop], "utf-8", "replace")
            if text.strip():
                try:
                    value, rest = json_text.first_value(text, at.__add__)
                    if is_last or _COMMA.match(rest):
                        return value, len(text) - len(rest), rest
                except BadInput as error:
                    # The same error in a wider window is none of its end.
                    if stop == end or str(error) == reason:
                        raise
                    reason = str(error)
            elif is_last:
                raise self._malformed("Expecting value", begin)
            if is_last:
                text = f"{self._place}[{row}]{self._suffix}: of another shape"
                raise wrong_shape(text, self._spec, self._suffix)
            window *= _WIDER

    def _malformed(self, problem: str, place: int) -> BadInput:
        at = place - self._added_bytes
        return BadInput(f"JSON Parse error: {problem} at offset: {at}")

    def _begin_of(self, row: int) -> int:
        """Return where a row begins in the body."""
        before = row * (len(brackets_of(self._shape)) + 1)
        for begin, piece in pieces.cut(self._numbers, len(self._shape)):
            if not before:
                return begin
            plain = pieces.without_words(piece, self._spec.dtype.kind)
            places = pieces.positions(plain)
            if before <= len(places):
                return begin + int(places[before - 1]) + 1
            before -= len(places) + 1
        return self._numbers.end - 1
