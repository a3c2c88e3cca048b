"""The bound on reruns of a failed batch."""

import math


class RetryBudget:
    """Bounds the reruns of a failed batch, besides those for lack of device memory.

    Those have fewer rows each time, and so come to an end. One job at fault among n
    costs at most 2 log2 n reruns. As many without a success mean that the model fails
    on nearly everything. The total is what four jobs at fault cost, or n if that is
    more, which is the cost of running each job alone.
    """

    def __init__(self, jobs: int) -> None:
        """Compute the budget of a batch of so many jobs, none of which succeeded."""
        self._without_success = 2 * math.ceil(math.log2(jobs))
        self._total = max(jobs, 4 * self._without_success)
        self.spent = 0
        self.has_success = False

    def is_left(self) -> bool:
        """Return whether two more reruns are left."""
        limit = self._total if self.has_success else self._without_success
        return self.spent + 2 <= limit
