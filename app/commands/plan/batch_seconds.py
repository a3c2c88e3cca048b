"""Seconds of a batch by its rows, from measured or given times."""

from collections.abc import Mapping, Sequence

import numpy as np

from app.batching.execution import padded
from app.settings import Settings


class BatchSeconds:
    """The time of a batch of 1 to `max_batch_size` rows.

    Between two measured sizes it is on the line through them. A batch after a rest of
    the device takes longer, by one of `after_rest_s` at random.
    """

    def __init__(
        self,
        by_size: Mapping[int, float],
        settings: Settings,
        after_rest_s: Sequence[float] = (0.0,),
    ) -> None:
        """Take seconds by batch size, at least of one size.

        Batches are as large as the largest size, and filled up to the allowed ones.
        """
        self.after_rest_s = after_rest_s
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

    def most_rows_per_s(self) -> float:
        """Return the rows per second of the batch size that runs most of them."""
        return max(n / self._seconds[n] for n in range(1, len(self._seconds)))
