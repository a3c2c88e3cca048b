"""Rows as NumPy's .npy format; one input, one output.

The array is a view of the received bytes. Nothing is allocated by a size that a
client claims, and pickled objects are refused.
"""

import io
import math

import numpy as np
from numpy.lib import format as npy_format

from app.codec.fit import fit
from app.engines.base import Array, Signature, Tensors
from app.errors import BadInput

CONTENT_TYPE = "application/x-npy"
# What NumPy 1 and 2 can both hold.
_MOST_DIMENSIONS = 32


def decode(body: bytes, signature: Signature) -> Tensors:
    """Read rows (rows, *shape) for a model with one input.

    Raises:
        BadInput: not .npy, not as long as its header says, or not what fits.
    """
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise BadInput(f".npy carries one input, this model takes several: {names}")
    array = _array(body)
    if array.ndim == 0:
        raise BadInput("the .npy array is a single value, expected rows")
    spec = signature.inputs[0]
    return {spec.name: fit(array, spec, "rows")}


def encode(outputs: Tensors) -> bytes:
    """Write the one output as .npy.

    Raises:
        BadInput: the model has several outputs, or gives strings.
    """
    if len(outputs) != 1:
        raise BadInput(
            f".npy carries one output, this model gives several: {', '.join(outputs)}; "
            "ask for JSON"
        )
    (array,) = outputs.values()
    if array.dtype.hasobject:
        raise BadInput(".npy carries numbers, this model gives strings; ask for JSON")
    file = io.BytesIO()
    npy_format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def _array(body: bytes) -> Array:
    file = io.BytesIO(body)
    try:
        version = npy_format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = npy_format.read_array_header_2_0(file)
        else:
            raise ValueError(f"format version {version[0]}.{version[1]}")
    except Exception as error:  # NumPy raises many kinds on a bad header
        text = str(error) or type(error).__name__
        raise BadInput(f"not a .npy array: {text.splitlines()[0][:200]}") from error
    if dtype.kind not in "biuf":
        raise BadInput(f"the .npy array holds {dtype}, not numbers")
    data = memoryview(body)[file.tell() :]
    # Sizes are claims, and may have more digits than Python prints.
    if len(shape) > _MOST_DIMENSIONS or any(abs(size) >> 63 for size in shape):
        raise BadInput("the .npy header says a shape that no array has")
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != len(data):
        raise BadInput(
            f"the .npy header says {shape} of {dtype}, which is {size} bytes; "
            f"{len(data)} follow"
        )
    if not data:
        raise BadInput("the .npy array holds no values")
    array = np.frombuffer(data, dtype)
    return array.reshape([int(n) for n in shape], order="F" if fortran else "C")
