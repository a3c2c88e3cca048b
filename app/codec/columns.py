"""The inputs of a request in JSON: rows of values or objects, or columns."""

import sys
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from app.codec import nested, strings
from app.codec.bounds import Bounds
from app.codec.json_arrays import mixed, numbers
from app.codec.json_arrays.split import Numbers
from app.codec.pictures import images
from app.engines.base import Array, Signature, TensorSpec
from app.errors import BadInput, too_many_rows
from app.settings.image_config import ImageConfig

# The most names that an error lists.
_NAMES_SHOWN = 8


class Column(NamedTuple):
    """One input's rows, and their place in the body: place[row]suffix."""

    spec: TensorSpec
    rows: list[Any] | Numbers
    place: str
    suffix: str = ""

    def is_bare(self) -> bool:
        """Return whether rows of shape (1,) are values without a list around them."""
        if self.spec.shape != (1,):
            return False
        if isinstance(self.rows, Numbers):
            return numbers.depth(self.rows) == 0
        return not isinstance(self.rows[0], list | Numbers)

    def without_shape(self) -> "Column":
        """Return the column of an input whose rows are single values."""
        return self._replace(spec=_with_shape(self.spec, ()))


class ColumnReading(NamedTuple):
    """How the columns of a request are read."""

    has_bools: bool
    image: ImageConfig | None
    bounds: Bounds

    def read(self, column: Column, *, is_bare: bool) -> Array:
        """Return one input's rows (rows, *shape); `is_bare` is that of the column."""
        if is_bare:
            flat = self.read(column.without_shape(), is_bare=False)
            return flat.reshape(-1, 1)
        spec, rows, place, suffix = column
        if isinstance(rows, Numbers):
            return numbers.read(rows, spec, place, suffix, self.bounds)
        if len(rows) > self.bounds.max_rows:
            raise too_many_rows(self.bounds.max_rows, len(rows))
        if self.image is not None and any(map(strings.is_b64, rows)):
            files, check = _image_files(rows, place, suffix), self.bounds.check
            return images.decode(files, self.image, spec, place, suffix, check)
        if Numbers in map(type, rows):
            return mixed.read(rows, self.of_rows(column))
        return nested.read(rows, spec, place, suffix, has_bools=self.has_bools)

    def of_rows(self, column: Column) -> mixed.RowReader:
        """Return what reads a column's rows, each by itself."""
        spec, _, place, suffix = column
        return mixed.RowReader(spec, place, suffix, self.bounds.check, self.has_bools)

    def read_whole(self, column: Column) -> Array:
        """Return one input's whole tensor as the only row of an array (1, *shape)."""
        spec, value, place, _ = column
        depth = _depth(value)
        if not depth and not spec.any_rank and spec.shape:
            raise _unlike(spec, place, "a single value")
        if depth and not spec.any_rank and not spec.shape:
            raise _unlike(spec, place, "a list")
        unbounded = self._replace(bounds=self.bounds._replace(max_rows=sys.maxsize))
        if not depth:
            scalar = column._replace(spec=_with_shape(spec, ()), rows=[value])
            return unbounded.read(scalar, is_bare=False).reshape(1)
        inner = (None,) * (depth - 1) if spec.any_rank else spec.shape[1:]
        rows = column._replace(spec=_with_shape(spec, inner))
        array = unbounded.read(rows, is_bare=False)
        if not spec.accepts(array.shape):
            raise _unlike(spec, place, array.shape)
        return array[np.newaxis]


def _depth(value: Any) -> int:
    """Return how many lists stand around the first value."""
    depth = 0
    while isinstance(value, list) and value:
        depth, value = depth + 1, value[0]
    if isinstance(value, Numbers):
        return depth + 1 + numbers.depth(value)
    return depth + isinstance(value, list)


def _with_shape(spec: TensorSpec, shape: tuple[int | None, ...]) -> TensorSpec:
    return replace(spec, shape=shape, any_rank=False)


def _unlike(spec: TensorSpec, place: str, given: object) -> BadInput:
    hint = ""
    if place == "instances":
        hint = '; this model is not batched: send {"inputs": ...}'
    return BadInput(f"{place}: expected shape {spec.shape_text()}, given {given}{hint}")


def _image_files(rows: list[Any], place: str, suffix: str) -> list[bytes]:
    files = []
    for number, row in enumerate(rows):
        at = f"{place}[{number}]{suffix}"
        if not strings.is_b64(row):
            raise BadInput(f'{at}: expected {{"b64": ...}}, as another row is')
        try:
            files.append(strings.to_bytes(row))
        except ValueError as error:
            raise BadInput(f"{at}: not base64: {error}") from None
    return files


def may_have_bools(body: bytes) -> bool:
    """Return whether the body holds the text of a bool, which may stand in a string."""
    # One letter is found many times as fast as a word.
    return (b"r" in body and b"true" in body) or (b"l" in body and b"false" in body)


def of_instances(instances: Any, signature: Signature) -> list[Column]:
    """Return the columns of rows: bare values, or objects with all inputs.

    Raises:
        BadInput: no rows, or one that is not an object with exactly the inputs.
    """
    has_one_input = len(signature.inputs) == 1
    names = [spec.name for spec in signature.inputs]
    if isinstance(instances, Numbers):
        if has_one_input:
            return [Column(signature.inputs[0], instances, "instances")]
        raise BadInput(f"instances[0]: expected an object with {_listed(names)}")
    if not isinstance(instances, list) or not instances:
        raise BadInput("'instances' must be a list/array with at least one row")
    named = [
        isinstance(instance, dict) and not (has_one_input and strings.is_b64(instance))
        for instance in instances
    ]
    if has_one_input and True not in named:
        return [Column(signature.inputs[0], instances, "instances")]
    if not all(named):
        row = named.index(False)
        raise BadInput(f"instances[{row}]: expected an object with {_listed(names)}")
    for row, instance in enumerate(instances):
        if instance.keys() != set(names):
            raise BadInput(
                f"instances[{row}]: keys must be equal to {_listed(names)}, "
                f"given {_listed(list(instance))}"
            )
    return [
        Column(
            spec, [row[spec.name] for row in instances], "instances", f".{spec.name}"
        )
        for spec in signature.inputs
    ]


def of_inputs(inputs: Any, signature: Signature) -> list[Column]:
    """Return the columns of a tensor, or of an object with one for each input.

    Raises:
        BadInput: an input is missing, or has no rows.
    """
    names = [spec.name for spec in signature.inputs]
    if not isinstance(inputs, dict) or strings.is_b64(inputs):
        if len(names) > 1:
            raise BadInput(f"inputs: expected an object with {_listed(names)}")
        columns = [Column(signature.inputs[0], inputs, "inputs")]
    else:
        missing = [name for name in names if name not in inputs]
        if missing:
            raise BadInput(f"Missing named input: {missing[0]} in 'inputs' object.")
        columns = [
            Column(spec, inputs[spec.name], f"inputs.{spec.name}")
            for spec in signature.inputs
        ]
    for column in columns:
        if signature.takes_whole_tensors:
            continue
        if not isinstance(column.rows, list | Numbers) or not column.rows:
            raise BadInput(f"{column.place}: expected a list with at least one row")
    return columns


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:_NAMES_SHOWN])
    return f"{shown}, ..." if len(names) > _NAMES_SHOWN else shown or "none"
