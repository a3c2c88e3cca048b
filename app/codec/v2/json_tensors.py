"""Tensors in the JSON of the Open Inference Protocol, both ways.

The values of a request may be flat or nested; the `shape` field decides. They are
checked as strictly as TensorFlow Serving does. A response has them flat, as Triton's
C++ client reads nothing else.
"""

import itertools
import math
from typing import Any

import numpy as np

from app.codec import nested
from app.codec.bounds import UNBOUNDED, Bounds
from app.codec.json_arrays import numbers
from app.codec.json_arrays.split import Numbers
from app.codec.v2.datatypes import datatype_of
from app.codec.v2.infer_options import shown
from app.engines.base import Array, TensorSpec
from app.errors import BadInput, TooLarge


def read(
    data: Any, spec: TensorSpec, shape: tuple[int, ...], bounds: Bounds = UNBOUNDED
) -> Array:
    """Return an input's values as an array of `shape`, the rows first.

    Raises:
        BadInput: more or fewer values than the shape has, or of another type.
    """
    place = f"input {spec.name!r}: data"
    if datatype_of(spec.dtype) == "FP16":
        raise BadInput(f"{place}: FP16 has no form in JSON: send it binary")
    if isinstance(data, Numbers):
        return _read_numbers(data, spec, shape, place, bounds)
    if not isinstance(data, list):
        raise BadInput(f"{place}: expected a list, given {shown(data)}")
    depth, leaves, types = 0, data, set(map(type, data))
    while types == {list}:
        depth, leaves = depth + 1, list(itertools.chain.from_iterable(leaves))
        types = set(map(type, leaves))
        if depth == len(shape):
            raise _too_deep(shape, place)
    any_size = TensorSpec(spec.name, spec.dtype, (None,) * depth)
    values = nested.read(data, any_size, place, "", has_bools=bool in types)
    if values.size != math.prod(shape):
        raise _wrong_count(shape, place, values.size)
    return values.reshape(shape)


def _read_numbers(
    data: Numbers,
    spec: TensorSpec,
    shape: tuple[int, ...],
    place: str,
    bounds: Bounds,
) -> Array:
    depth = numbers.depth(data)
    if depth >= len(shape):
        raise _too_deep(shape, place)
    size = math.prod(shape)
    any_size = TensorSpec(spec.name, spec.dtype, (None,) * depth)
    try:
        values = numbers.read(data, any_size, place, bounds=Bounds(size, bounds.check))
    except TooLarge:
        raise _wrong_count(shape, place, "more") from None
    if values.size != size:
        raise _wrong_count(shape, place, values.size)
    return values.reshape(shape)


def _too_deep(shape: tuple[int, ...], place: str) -> BadInput:
    return BadInput(f"{place}: nested deeper than its shape {list(shape)}")


def _wrong_count(shape: tuple[int, ...], place: str, given: object) -> BadInput:
    size = math.prod(shape)
    return BadInput(f"{place}: shape {list(shape)} is {size} values, given {given}")


def write(array: Array, name: str) -> Array | list[str]:
    """Return the values of the output `name`, flat.

    Raises:
        BadInput: a string is not UTF-8, which JSON can't hold.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.dtype.kind != "O":
        return flat
    try:
        return [value.decode() for value in flat.tolist()]
    except UnicodeDecodeError:
        raise BadInput(
            f"output {name!r} holds a string that is no UTF-8, which JSON can't "
            "carry: ask for it with binary_data"
        ) from None
