"""The bound on reruns of a failed batch, and the errors that remain."""

import math

from app.errors import BasketError, ModelFailed, RefusedInput


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

    def is_left(self, error: BasketError) -> bool:
        """Return whether a row may be at fault, and two more reruns are left.

        A model that refuses rows as invalid is not broken, so that the total counts.
        """
        is_refusal = isinstance(error, RefusedInput)
        # The cause of other subclasses is not a row.
        if not is_refusal and type(error) is not ModelFailed:
            return False
        is_alive = self.has_success or is_refusal
        limit = self._total if is_alive else self._without_success
        return self.spent + 2 <= limit


def error_of_each(jobs: int, error: BasketError) -> BasketError:
    """Return the error for each of so many jobs that ran together last."""
    if jobs > 1 and isinstance(error, RefusedInput):
        # Some of them may be valid.
        return ModelFailed("the model refuses one of the inputs that ran together")
    return error
