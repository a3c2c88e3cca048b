"""Which rows of a version's outputs agree with those of another version."""

import numpy as np

from app.engines.base import Tensors
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
            # Strings, or rows that are arrays of unlike shapes.
            pairs = zip(array, other, strict=True)
            agrees &= [np.array_equal(one, another) for one, another in pairs]
        else:
            comparison = OutputComparison(name)
            comparison.add(array, other)
            agrees &= comparison.result().agrees
    return agrees
