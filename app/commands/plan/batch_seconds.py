"""Seconds of a batch by its rows, from measured or given times."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from app.batching.execution import padded
from app.settings import Settings


class BatchSeconds:
    """The time of a batch of 1 to `max_batch_size` rows.

    Between two measured sizes it is on the line through them. A batch takes longer
    than that, or less long, by one at random of the times that were found after the
    rest of the device that comes nearest.
    """

    def __init__(
        self,
        by_size: Mapping[int, float],
        settings: Settings,
        after_rest_s: Mapping[float, Sequence[float]] | None = None,
    ) -> None:
        """Take seconds by batch size, at least of one size, and what rests add.

        `after_rest_s` has seconds to add by the seconds of a rest.
        Batches are as large as the largest size, and filled up to the allowed ones.
        """
        by_rest = sorted((after_rest_s or {}).items())
        rests_s = [rest_s for rest_s, _ in by_rest]
        self._rest_bounds_s = [sum(pair) / 2 for pair in pairwise(rests_s)]
        self._after_s = [added_s for _, added_s in by_rest] or [(0.0,)]
        sizes = sorted(by_size)
        self.max_batch_size = sizes[-1]
        allowed = [n for n in settings.allowed_batch_sizes if n <= sizes[-1]]
        rows = [padded(n, allowed) for n in range(sizes[-1] + 1)]
        self._seconds: list[float] = np.interp(
            rows, sizes, [by_size[size] for size in sizes]
        ).tolist()

    def of(self, rows: int) -> float:
        """Return the seconds of a batch of so many rows."""
        return self._seconds[rows]

    def after(self, rest_s: float) -> Sequence[float]:
        """Return the seconds of which one is added to a batch after such a rest."""
        return self._after_s[bisect_right(self._rest_bounds_s, rest_s)]

    def most_rows_per_s(self) -> float:
        """Return the rows per second of the batch size that runs most of them."""
        return max(n / self._seconds[n] for n in range(1, len(self._seconds)))
