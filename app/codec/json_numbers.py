"""Rows of floats in a small JSON body to an array, without a Python object for each.

simdjson reads the most usual body, {"instances": [[1.5, ...], ...]}, in half of the
time that orjson and struct take. Any other body is left to them.
"""

import threading

import numpy as np
import simdjson

from app.codec import nested
from app.engines.base import Array, TensorSpec

# For smaller bodies the call of a second parser takes as long as orjson's objects.
MIN_BYTES = 1 << 12
# A parser keeps about ten times the memory of its largest body.
_MAX_BYTES = 1 << 16
# For longer slices NumPy releases the interpreter's lock, and getting it back from
# other threads takes longer than the conversion.
_SLICE = 500


class _ThreadParser(threading.local):
    """One parser per thread, as a parser holds one body at a time."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser(max_capacity=_MAX_BYTES)


_thread = _ThreadParser()


def read(body: bytes, spec: TensorSpec) -> Array | None:
    """Return the rows (rows, *shape) in the input's dtype, or None.

    None: the input is not of floats, the body is too large, has another key, is
    malformed, or has a value or shape that does not fit. `json_text` and `nested` read
    it then, or say what is wrong.
    """
    if spec.dtype.kind != "f":
        return None
    try:
        document = _thread.parser.parse(body)
        if not isinstance(document, simdjson.Object) or len(document) != 1:
            return None
        rows = document["instances"]
        if not isinstance(rows, simdjson.Array):
            return None
        lists, row_shape = nested.innermost(rows, spec.shape, simdjson.Array) or (
            [],
            (),
        )
        shape = (len(rows), *row_shape)
        if not lists or not shape[0] or _list_count(body) != _expected_lists(shape):
            return None
        doubles = np.frombuffer(rows.as_buffer(of_type="d"))
        array = np.empty(shape, spec.dtype)
        flat = array.reshape(doubles.shape)
        with np.errstate(over="raise"):
            for begin in range(0, len(flat), _SLICE):
                flat[begin : begin + _SLICE] = doubles[begin : begin + _SLICE]
        return array
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def _list_count(body: bytes) -> int:
    # Counted up to the last: searching it backwards is much faster than counting on.
    return body.count(b"[", 0, body.rfind(b"[") + 1)


def _expected_lists(shape: tuple[int, ...]) -> int:
    """Return how many lists rows of this shape are; more mean a list for a number."""
    lists = count = 1
    for size in shape[:-1]:
        count *= size
        lists += count
    return lists
