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
from app.codec.binary_tensors import shaped
from app.codec.datatypes import datatype_of
from app.codec.infer_options import shown
from app.engines.base import Array, TensorSpec
from app.errors import BadInput


def read(data: Any, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Return an input's values as an array of `shape`, the rows first.

    Raises:
        BadInput: more or fewer values than the shape has, or of another type.
    """
    place = f"input {spec.name!r}: data"
    if datatype_of(spec.dtype) == "FP16":
        raise BadInput(f"{place}: FP16 has no form in JSON: send it binary")
    if not isinstance(data, list):
        raise BadInput(f"{place}: expected a list, given {shown(data)}")
    depth, leaves, types = 0, data, set(map(type, data))
    while types == {list}:
        depth, leaves = depth + 1, list(itertools.chain.from_iterable(leaves))
        types = set(map(type, leaves))
        if depth == len(shape):
            raise BadInput(f"{place}: nested deeper than its shape {list(shape)}")
    any_size = TensorSpec(spec.name, spec.dtype, (None,) * depth)
    values = nested.read(data, any_size, place, "", has_bools=bool in types)
    if values.size != math.prod(shape):
        raise BadInput(
            f"{place}: shape {list(shape)} is {math.prod(shape)} values, given "
            f"{values.size}"
        )
    return shaped(values, shape, place)


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
