"""The Open Inference Protocol's names for dtypes."""

from functools import cache

import numpy as np

from app.errors import Unsupported

BYTES = "BYTES"
# By the dtype's kind and size in bytes, as NumPy writes them.
_DATATYPES = {
    **{"O": BYTES, "b1": "BOOL", "f2": "FP16", "f4": "FP32", "f8": "FP64"},
    **{f"i{size}": f"INT{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"UINT{8 * size}" for size in (1, 2, 4, 8)},
}


@cache
def datatype_of(dtype: np.dtype[np.generic]) -> str:
    """Return the protocol's datatype for a dtype, such as FP32.

    Raises:
        Unsupported: it has none, as for complex numbers.
    """
    datatype = _DATATYPES.get(dtype.str[1:])
    if datatype is None:
        raise Unsupported(f"{dtype} has no datatype in the Open Inference Protocol")
    return datatype
