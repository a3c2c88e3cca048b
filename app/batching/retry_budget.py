"""What a batch that failed is worth: runs of its parts."""

import math


class RetryBudget:
    """How many reruns a failed batch is worth, besides those for lack of memory.

    Each of these has fewer rows, so they come to an end by themselves.
    One guilty job among n costs at most 2 log2 n. As many without one success mean
    that the model fails on nearly everything. In all there are no more than four
    guilty ones cost, or n, which running each job alone would take.
    """

    def __init__(self, jobs: int) -> None:
        """Of a batch of so many jobs; none of them has succeeded."""
        one_guilty = 2 * math.ceil(math.log2(jobs))
        self._left = max(jobs, 4 * one_guilty)
        self._fruitless_left = one_guilty
        self.has_success = False

    def is_left(self) -> bool:
        """Whether two more are."""
        return self._left > 1 and (self.has_success or self._fruitless_left > 1)

    def spend(self) -> None:
        """One is made."""
        self._left -= 1
        self._fruitless_left -= 1
