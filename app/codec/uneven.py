"""Rows of unlike shapes in one request: those of each shape are run together.

So are rows of one shape whose outputs may have unlike ones, each by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.codec.columns import Column, ColumnReading
from app.codec.fit import check_equal_rows
from app.codec.json_arrays import rows_of
from app.codec.json_arrays.split import Numbers
from app.engines.base import Array, Tensors
from app.errors import too_many_rows


class Uneven(NamedTuple):
    """Inputs (rows, *shape) for each combination of row shapes, and their places.

    `places` are the rows' numbers in the request.
    """

    groups: list[Tensors]
    places: list[list[int]]

    def joined(self, outputs: Sequence[Tensors]) -> Tensors:
        """Return the groups' outputs in the order of the request's rows.

        Where rows of an output differ in shape, it is an array of arrays.
        """
        return {name: self._in_order([o[name] for o in outputs]) for name in outputs[0]}

    def _in_order(self, arrays: list[Array]) -> Array:
        rows = sum(map(len, self.places))
        is_even = len({array.shape[1:] for array in arrays}) == 1
        if is_even:
            result = np.empty((rows, *arrays[0].shape[1:]), arrays[0].dtype)
        else:
            result = np.empty(rows, object)
        for places, array in zip(self.places, arrays, strict=True):
            if is_even:
                result[places] = array
                continue
            for place, row in zip(places, range(len(array)), strict=True):
                result[place] = array[row : row + 1].reshape(array.shape[1:])
        return result


def read(columns: list[Column], reading: ColumnReading) -> Tensors | Uneven:
    """Return the rows of columns, of which one or more have free sizes.

    Raises:
        BadInput: a row does not fit, or columns have unlike numbers of rows.
        BasketError: as `ColumnReading.read` does.
    """
    rows = [_rows_of(column, reading) for column in columns]
    names = [column.spec.name for column in columns]
    check_equal_rows(dict(zip(names, rows, strict=True)), "inputs.{}")
    return grouped(names, rows)


def grouped(names: Sequence[str], rows: Sequence[Sequence[Array]]) -> Tensors | Uneven:
    """Return rows, for each input a sequence of them, as inputs of one shape or not."""
    by_shapes: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for number, row in enumerate(zip(*rows, strict=True)):
        by_shapes.setdefault(tuple(value.shape for value in row), []).append(number)
    groups: list[Tensors] = [
        {
            name: _stacked([values[number] for number in numbers])
            for name, values in zip(names, rows, strict=True)
        }
        for numbers in by_shapes.values()
    ]
    return groups[0] if len(groups) == 1 else Uneven(groups, [*by_shapes.values()])


def one_by_one(inputs: Tensors) -> Uneven:
    """Return rows (rows, *shape) as groups of one row."""
    rows = len(next(iter(inputs.values())))
    return Uneven(
        [
            {name: array[row : row + 1] for name, array in inputs.items()}
            for row in range(rows)
        ],
        [[row] for row in range(rows)],
    )


def _stacked(rows: list[Array]) -> Array:
    # NumPy takes several times as long for the same.
    return rows[0][np.newaxis] if len(rows) == 1 else np.stack(rows)


def _rows_of(column: Column, reading: ColumnReading) -> Sequence[Array]:
    """Return each row of a column as an array."""
    spec, rows, place, suffix = column
    if None not in spec.shape:
        array = reading.read(column, is_bare=column.is_bare())
        return [array[n : n + 1].reshape(array.shape[1:]) for n in range(len(array))]
    max_rows = reading.bounds.max_rows
    if isinstance(rows, Numbers):
        rows = rows_of.split_rows(rows, max_rows, place, suffix)
    if len(rows) > max_rows:
        raise too_many_rows(max_rows, len(rows))
    reader, values = reading.of_rows(column), []
    for number, row in enumerate(rows):
        reading.bounds.check()
        values.append(reader.read(row, number))
    return values
