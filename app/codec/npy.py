"""Rows in NumPy's .npy format: one input, one output.

The decoded array is a view of the body. Nothing is allocated by a size that a client
claims, and pickled objects are refused.
"""

import io
import math

import numpy as np
from numpy.lib import format as npy_format

from app.codec.bounds import UNBOUNDED
from app.codec.fit import check_bools, fit
from app.codec.tensor_shape import WITHOUT_VALUES, is_large_without_values
from app.engines.base import Array, Signature, Tensors
from app.errors import BadInput, too_many_rows

CONTENT_TYPE = "application/x-npy"
# The limit of NumPy 1; NumPy 2 takes 64.
_MAX_DIMENSIONS = 32
_MAGIC = b"\x93NUMPY"
_VERSION_END = len(_MAGIC) + 2
_FIRST = b"\x01\x00"
# Version of the format -> bytes of the header's length, and what reads the header.
_VERSIONS = {
    _FIRST: (2, npy_format.read_array_header_1_0),
    b"\x02\x00": (4, npy_format.read_array_header_2_0),
}


def decode(
    body: bytes, signature: Signature, max_rows: int = UNBOUNDED.max_rows
) -> Tensors:
    """Return rows (rows, *shape) for a model with one input.

    Raises:
        BadInput: not .npy, of another length than its header says, or a dtype, shape
            or value that the input does not take.
        TooLarge: more than `max_rows` rows.
    """
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise BadInput(f".npy carries one input, this model takes several: {names}")
    spec = signature.inputs[0]
    if signature.takes_whole_tensors:
        return {spec.name: fit(read(body)[np.newaxis], spec, "array")}
    return {spec.name: fit(read_rows(body, max_rows), spec, "rows")}


def read_rows(body: bytes, max_rows: int = UNBOUNDED.max_rows) -> Array:
    """Return an array (rows, ...), a view of the body.

    Raises:
        BadInput: not .npy, of another length than its header says, a single value, or
            without rows.
        TooLarge: more than `max_rows` rows, which may have no values.
    """
    array = read(body)
    if array.ndim == 0:
        raise BadInput("the .npy array is a single value, expected rows")
    if not len(array):
        raise BadInput("the .npy array has no rows")
    if len(array) > max_rows:
        raise too_many_rows(max_rows, len(array))
    return array


def encode(outputs: Tensors, *, is_whole: bool = False) -> bytes:
    """Return the one output as .npy; with `is_whole`, its only row.

    Raises:
        BadInput: the model has several outputs, or returns strings, or rows of unlike
            shapes.
    """
    if len(outputs) != 1:
        raise BadInput(
            f".npy carries one output, this model gives several: {', '.join(outputs)}; "
            "ask for JSON"
        )
    (array,) = outputs.values()
    if is_whole:
        array = array.reshape(array.shape[1:])
    if array.dtype.hasobject:
        is_uneven = isinstance(next(array.flat, None), np.ndarray)
        given = "rows of unlike shapes" if is_uneven else "strings"
        raise BadInput(f".npy carries numbers, this model gives {given}; ask for JSON")
    file = io.BytesIO()
    npy_format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def read(body: bytes) -> Array:
    """Return the array of numbers in a .npy, a view of the body.

    Raises:
        BadInput: not .npy, of another length than its header says, or a bool is
            neither 0 nor 1.
    """
    shape, fortran, dtype, begin = _header(body)
    if dtype.kind not in "biuf":
        raise BadInput(f"the .npy array holds {dtype.name}, not numbers")
    data = memoryview(body)[begin:]
    # A claimed size may have more digits than Python prints.
    if len(shape) > _MAX_DIMENSIONS or any(abs(size) >> 63 for size in shape):
        raise BadInput("the .npy header says a shape that no array has")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != len(data):
        raise BadInput(
            f"the .npy header says {shape} of {dtype.name}, which is {size} bytes; "
            f"{len(data)} follow"
        )
    if is_large_without_values(shape):
        raise BadInput(f"the .npy header says {WITHOUT_VALUES}")
    check_bools(data, dtype, "the .npy array")
    array = np.frombuffer(data, dtype)
    return array.reshape([int(n) for n in shape], order="F" if fortran else "C")


def _header(body: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Return shape, Fortran order, dtype, and where the values begin.

    Raises:
        BadInput: not .npy, of an unknown version, or cut or malformed in the header.
            Texts are Basket's own: NumPy's may show objects of the interpreter.
    """
    if not body.startswith(_MAGIC):
        raise BadInput("not a .npy array: expected \\x93NUMPY as its first bytes")
    version = body[len(_MAGIC) : _VERSION_END]
    if len(version) == _VERSION_END - len(_MAGIC) and version not in _VERSIONS:
        given = ".".join(map(str, version))
        raise BadInput(
            f"not a .npy array: expected format version 1.0 or 2.0, given {given}"
        )
    length_bytes, read = _VERSIONS.get(version, _VERSIONS[_FIRST])
    begin = _VERSION_END + length_bytes
    end = begin + int.from_bytes(body[_VERSION_END:begin], "little")
    if len(body) < end:
        raise BadInput(
            f"not a .npy array: cut in its header, expected {end} bytes or more, given "
            f"{len(body)}"
        )
    file = io.BytesIO(body)
    file.seek(_VERSION_END)
    try:
        shape, fortran, dtype = read(file)
    except Exception as error:  # NumPy raises many types for a malformed header
        raise BadInput(
            "not a .npy array: malformed header, expected {'descr': '<f4', "
            "'fortran_order': False, 'shape': (rows, ...)} or the like"
        ) from error
    return shape, fortran, dtype, end
