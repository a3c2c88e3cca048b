"""Which rows of a version's outputs agree with those of another version."""

import numpy as np

from app.engines.base import Array, Tensors
from app.promotion.measures.agreement import Bools, OutputComparison


def agreeing_rows(expected: Tensors, actual: Tensors) -> Bools:
    """Return, for each row, whether all outputs agree."""
    rows = len(next(iter(expected.values())))
    agrees = np.ones(rows, np.bool_)
    for name, array in expected.items():
        other = actual.get(name)
        if other is None:
            agrees[:] = False
        elif array.dtype.hasobject:
            agrees &= _equal(array, other)
        else:
            comparison = OutputComparison(name)
            comparison.add(array, other)
            agrees &= comparison.result().agrees
    return agrees


def _equal(expected: Array, actual: Array) -> Bools:
    """Compare strings, or rows that are arrays of unlike shapes."""
    if expected.shape != actual.shape:
        return np.zeros(len(expected), np.bool_)
    pairs = zip(expected, actual, strict=True)
    return np.array([np.array_equal(one, other) for one, other in pairs], np.bool_)
