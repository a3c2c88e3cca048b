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


def decode(body: bytes, signature: Signature) -> Tensors:
    """Read rows (rows, *shape) for a model with one input.

    Raises:
        BadInput: not .npy, not as long as its header says, or not what fits.
    """
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise BadInput(f".npy carries one input, this model takes several: {names}")
    array = _array(body)
    if array.ndim == 0 or len(array) == 0:
        raise BadInput("the .npy array holds no rows")
    spec = signature.inputs[0]
    return {spec.name: fit(array, spec, "rows")}


def encode(outputs: Tensors) -> bytes:
    """Write the one output as .npy.

    Raises:
        BadInput: the model has several outputs.
    """
    if len(outputs) != 1:
        raise BadInput(
            f".npy carries one output, this model gives several: {', '.join(outputs)}; "
            "ask for JSON"
        )
    (array,) = outputs.values()
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
        raise BadInput(f"not a .npy array: {str(error).splitlines()[0]}") from error
    if dtype.kind not in "biuf":
        raise BadInput(f"the .npy array holds {dtype}, not numbers")
    data = memoryview(body)[file.tell() :]
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(data):
        raise BadInput(
            f"the .npy header says {shape} of {dtype}, which is "
            f"{count * dtype.itemsize} bytes; {len(data)} follow"
        )
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
