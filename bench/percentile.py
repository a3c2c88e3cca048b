"""A percentile, the same for every table."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that at least `percent` of them do not exceed; 0 of nothing.

    This is the nearest rank: a value that was measured, and none between two.
    """
    if not values:
        return 0.0
    rank = math.ceil(len(values) * percent / 100)
    return sorted(values)[max(rank, 1) - 1]
