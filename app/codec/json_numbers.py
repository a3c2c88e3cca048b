"""Rows of numbers in a small JSON body, to an array with no object for each of them.

simdjson reads the most usual body, {"instances": [[1.5, ...], ...]}, in half of the
time that orjson and struct take. Whatever is not quite that is left to them.
"""

import itertools
import threading
from typing import Any

import numpy as np
import simdjson

from app.engines.base import Array, TensorSpec

# Of less, orjson makes objects in the time that the call of another parser takes.
WORTH_BYTES = 1 << 12
# A parser keeps memory for its largest body, about ten times as much.
_SMALL_BYTES = 1 << 16
# For more values NumPy lets go of the interpreter's lock, and other threads fight for
# it longer than the values take.
_AT_A_TIME = 500


class _Own(threading.local):
    """A parser holds one body at a time, so each thread has its own."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser(max_capacity=_SMALL_BYTES)


_own = _Own()


def read(body: bytes, spec: TensorSpec) -> Array | None:
    """Read the rows (rows, *shape) in the input's dtype, if nothing is odd about them.

    None: the input takes no fractions, the body is large or has another key, or there
    is something in it that `nested.read` or `json_text.loads` would say or do more to.
    """
    if spec.dtype.kind != "f":
        return None
    try:
        document = _own.parser.parse(body)
        if not isinstance(document, simdjson.Object) or len(document) != 1:
            return None
        rows = document["instances"]
        if not isinstance(rows, simdjson.Array) or not len(rows):
            return None
        # Up to the last, as the search for it is much faster than to count on.
        lists = body.count(b"[", 0, body.rfind(b"[") + 1)
        shape = _shape(rows, spec.shape, lists)
        if shape is None:
            return None
        doubles = np.frombuffer(rows.as_buffer(of_type="d"))
        array = np.empty(shape, spec.dtype)
        flat = array.reshape(doubles.shape)
        with np.errstate(over="raise"):
            for begin in range(0, len(flat), _AT_A_TIME):
                end = begin + _AT_A_TIME
                flat[begin:end] = doubles[begin:end]
        return array
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _shape(
    rows: simdjson.Array, wanted: tuple[int | None, ...], lists: int
) -> list[int] | None:
    """The rows' shape, if they are that many lists in all and evenly nested."""
    innermost: list[Any] = [rows]
    shape = [len(rows)]
    for size in wanted:
        innermost = list(itertools.chain.from_iterable(innermost))
        lists -= len(innermost)
        if set(map(type, innermost)) != {simdjson.Array}:
            return None
        given, *others = set(map(len, innermost))
        if others or size not in (None, given):
            return None
        shape.append(given)
    return shape if lists == 1 else None
