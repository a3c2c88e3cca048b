"""Rows of which some are long arrays of numbers that are still JSON text."""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from app.codec import nested
from app.codec.bounds import Bounds, Check
from app.codec.fit import type_name
from app.codec.json_arrays import numbers
from app.codec.json_arrays.split import Numbers
from app.codec.row_hint import wrong_shape
from app.engines.base import Array, TensorSpec


class RowReader(NamedTuple):
    """Reads rows of one input, each by itself."""

    spec: TensorSpec
    place: str
    suffix: str
    check: Check
    has_bools: bool

    def read(self, row: Any, number: int) -> Array:
        """Return the row with this number, `Numbers` or nested lists, as an array.

        Raises:
            BasketError: as `numbers.read` does.
        """
        spec, place, suffix, check, has_bools = self
        at = f"{place}[{number}]{suffix}"
        inner = TensorSpec(spec.name, spec.dtype, spec.shape[1:])
        if isinstance(row, Numbers):
            value = numbers.read(row, inner, at, "", Bounds(check=check))
        else:
            nested.check_row(row, spec.shape, spec, place, suffix, number)
            value = nested.read(row, inner, at, "", has_bools=has_bools)
        if spec.shape[0] not in (None, len(value)):
            text = f"{at}: expected {spec.shape[0]} values, given {len(value)}"
            raise wrong_shape(text, spec, suffix)
        return value


def read(rows: list[Any], reader: RowReader) -> Array:
    """Return rows of which some are `Numbers`, and others lists of them.

    Raises:
        BasketError: as `numbers.read` does.
    """
    if not reader.spec.shape:
        _refuse_list(rows, reader)
    values = np.empty(0, reader.spec.dtype)
    for number, row in enumerate(rows):
        value = reader.read(row, number)
        if not number:
            # The first row settles the free sizes.
            spec = reader.spec
            settled = TensorSpec(spec.name, spec.dtype, value.shape)
            reader = reader._replace(spec=settled)
            values = np.empty((len(rows), *value.shape), spec.dtype)
        values[number] = value
    return values


def _refuse_list(rows: list[Any], reader: RowReader) -> NoReturn:
    """Raise the error of the first row that is no single value of the input."""
    spec, place, suffix, _, has_bools = reader
    number = [isinstance(row, Numbers) for row in rows].index(True)
    if number:
        nested.read(rows[:number], spec, place, suffix, has_bools=has_bools)
    text = f"{place}[{number}]{suffix}: expected {type_name(spec.dtype)}, given a list"
    raise wrong_shape(text, spec, suffix)
