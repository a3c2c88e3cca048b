"""The Open Inference Protocol's names for dtypes."""

import numpy as np

from app.errors import Unsupported

BYTES = "BYTES"
_NAMES = {"b": "BOOL", "i": "INT", "u": "UINT", "f": "FP"}
# Kind of dtype -> item sizes in bytes that have a name.
_WIDTHS = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}


def datatype_of(dtype: np.dtype[np.generic]) -> str:
    """Return the protocol's datatype for a dtype, such as FP32.

    Raises:
        Unsupported: it has none, as for complex numbers.
    """
    if dtype.kind == "O":
        return BYTES
    if dtype.itemsize not in _WIDTHS.get(dtype.kind, ()):
        raise Unsupported(f"{dtype} has no datatype in the Open Inference Protocol")
    bits = "" if dtype.kind == "b" else str(8 * dtype.itemsize)
    return _NAMES[dtype.kind] + bits
