"""Rows of which some are long arrays of numbers that are still JSON text."""

from typing import Any

import numpy as np

from app.codec import nested
from app.codec.bounds import Bounds
from app.codec.fit import type_name
from app.codec.json_arrays import numbers
from app.codec.json_arrays.split import Numbers
from app.codec.row_hint import row_hint
from app.engines.base import Array, TensorSpec
from app.errors import BadInput


def read(
    rows: list[Any],
    spec: TensorSpec,
    place: str,
    suffix: str,
    bounds: Bounds,
    has_bools: bool,
) -> Array:
    """Return rows of which some are `Numbers`, and others lists of them.

    Raises:
        BasketError: as `numbers.read` does.
    """
    values = np.empty(0, spec.dtype)
    for number, row in enumerate(rows):
        at = f"{place}[{number}]{suffix}"
        if not spec.shape and isinstance(row, Numbers):
            raise BadInput(
                f"{at}: expected {type_name(spec.dtype)}, given a list; "
                f"{row_hint(spec, suffix)}"
            )
        inner = TensorSpec(spec.name, spec.dtype, spec.shape[1:])
        if isinstance(row, Numbers):
            value = numbers.read(row, inner, at, "", Bounds(check=bounds.check))
        else:
            nested.check_row(row, spec.shape, spec, place, suffix, number)
            value = nested.read(row, inner, at, "", has_bools=has_bools)
        if spec.shape[0] not in (None, len(value)):
            raise BadInput(
                f"{at}: expected {spec.shape[0]} values, given {len(value)}; "
                f"{row_hint(spec, suffix)}"
            )
        if not number:
            # The first row settles the free sizes.
            spec = TensorSpec(spec.name, spec.dtype, value.shape)
            values = np.empty((len(rows), *value.shape), spec.dtype)
        values[number] = value
    return values
