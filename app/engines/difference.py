"""Relative differences between the outputs of two runs."""

import math
from collections.abc import Sequence

import numpy as np

from app.engines.base import Array


def largest_magnitude(arrays: Sequence[Array]) -> float:
    """Return the largest finite absolute value of floats; 1 for other dtypes or 0."""
    if arrays[0].dtype.kind != "f":
        return 1.0
    finite = [np.abs(array[np.isfinite(array)]).max(initial=0) for array in arrays]
    return float(max(finite)) or 1.0


def relative_difference(expected: Array, actual: Array, scale: float) -> float:
    """Return the largest absolute difference of floats divided by `scale`.

    For other dtypes, return the fraction of unequal values; for different shapes,
    infinity. NaN and infinities equal themselves and are infinitely far from others.
    """
    if expected.shape != actual.shape:
        return math.inf
    if expected.dtype.kind != "f":
        return float((expected != actual).mean()) if expected.size else 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(expected.astype(np.float64) - actual.astype(np.float64)) / scale
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    apart[same] = 0.0
    return float(np.where(np.isnan(apart), math.inf, apart).max(initial=0.0))
