"""JSON of plain rows: {"instances": [[...], ...]} to an array, and outputs to JSON.

Most requests have rows of numbers for a model with one input. Whatever is not surely of
this form, wrong bodies too, is left to `app.codec.rows`, which takes all forms and
names the place of the first misfit. So nothing here explains an error.
"""

import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
import orjson
import simdjson

from app.engines.base import Array, Signature, Tensors

# simdjson's name of the type in which it holds a dtype's values without loss, or with
# one more bit than needed to round once.
_READERS = {"f4": "d", "f8": "d", "i8": "i"}
_DTYPES = {"d": np.dtype("f8"), "i": np.dtype("i8")}
_WRITTEN = frozenset(map(np.dtype, ("f4", "f8", "i4", "i8")))
_MAX_FLOAT32 = float(np.finfo("f4").max)
# BLAS computes longer products in threads of its own.
_BLAS_ALONE = 8192
# Of the check whether a value fits float32, which fails then.
warnings.filterwarnings("ignore", "overflow encountered in dot")

_local = threading.local()
_frombuffer = np.frombuffer
_dumps = orjson.dumps
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


class PlainInput(NamedTuple):
    """The only input of a signature, whose rows are `size` numbers each."""

    name: str
    dtype: np.dtype[Any]
    size: int
    reader: str


def plain_input(signature: Signature | None) -> PlainInput | None:
    """Return a signature's input, None if there are several, or its rows are not plain.

    Plain rows have one dimension of a known size, and a dtype in which JSON's numbers
    are read at once.
    """
    if signature is None or len(signature.inputs) != 1:
        return None
    if signature.takes_whole_tensors or signature.unbatched:
        return None
    (spec,) = signature.inputs
    reader = _READERS.get(spec.dtype.str[1:])
    if reader is None or spec.any_rank or spec.narrower or len(spec.shape) != 1:
        return None
    (size,) = spec.shape
    return PlainInput(spec.name, spec.dtype, size, reader) if size else None


def read_plain_rows(body: bytes, plain: PlainInput, max_rows: int) -> Array | None:
    """Return the rows (rows, size) of a body; None: it is not plain, or is wrong."""
    _, dtype, size, reader = plain
    try:
        parser = _local.parser
    except AttributeError:
        parser = _local.parser = simdjson.Parser()
    document = rows = None
    try:
        document = parser.parse(body)
        rows = document["instances"]
        count = len(rows)
        values = _frombuffer(rows.as_buffer(of_type=reader), _DTYPES[reader])
        # One bracket is that of all rows, the others are those of one row each. If
        # each row has as many values as it should, none is left for deeper lists.
        if (
            len(values) != count * size
            or len(document) != 1
            or body.count(b"[") != count + 1
            or not 0 < count <= max_rows
            or (count > 1 and {len(row) for row in rows} != {size})
        ):
            return None
        if dtype.itemsize < values.itemsize:
            # Some value may round to infinity as a float32.
            if len(values) <= _BLAS_ALONE:
                fits = values.dot(values) < _MAX_FLOAT32**2
            else:
                fits = np.abs(values).max() < _MAX_FLOAT32
            if not fits:
                return None
        return values.astype(dtype).reshape(count, size)
    except (TypeError, ValueError, LookupError, RuntimeError, RuntimeWarning):
        return None
    except AttributeError:
        return None  # An object or a string in the place of the rows.
    finally:
        # The parser is used again only once nothing refers to its document.
        document = rows = None


def write_plain_rows(outputs: Tensors) -> bytes | None:
    """Return {"predictions": [...]}; None: not one output of finite numbers in rows."""
    if len(outputs) != 1:
        return None
    (array,) = outputs.values()
    if array.dtype not in _WRITTEN or not array.ndim or not array.flags.c_contiguous:
        return None
    try:
        body = _dumps({"predictions": array}, None, _NUMPY)
    except TypeError:
        return None  # A view that is not contiguous in memory.
    # orjson writes null for NaN and infinities.
    return None if b"u" in body else body
