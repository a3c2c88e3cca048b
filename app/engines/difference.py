"""How far one answer is from another."""

import math
from collections.abc import Sequence

import numpy as np

from app.engines.base import Array


def scale(arrays: Sequence[Array]) -> float:
    """What a difference of 1 is: the largest finite value of floats, else 1."""
    if arrays[0].dtype.kind != "f":
        return 1.0
    finite = [np.abs(array[np.isfinite(array)]).max(initial=0) for array in arrays]
    return float(max(finite)) or 1.0


def share(wanted: Array, given: Array, scale: float) -> float:
    """The largest difference of floats as a share of `scale`.

    Of all else the share of values that are not equal; of other shapes infinity. NaN
    and an infinity are equal to themselves, and infinitely far from all else.
    """
    if wanted.shape != given.shape:
        return math.inf
    if wanted.dtype.kind != "f":
        return float((wanted != given).mean()) if wanted.size else 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(wanted.astype(np.float64) - given.astype(np.float64)) / scale
    same = (wanted == given) | (np.isnan(wanted) & np.isnan(given))
    apart[same] = 0.0
    return float(np.where(np.isnan(apart), math.inf, apart).max(initial=0.0))
