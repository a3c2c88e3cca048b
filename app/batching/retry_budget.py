"""The bound on reruns of a failed batch, and the errors that remain."""

import math
from collections.abc import Sequence
from typing import TypeVar

from app.errors import BasketError, ModelFailed, RefusedInput

_T = TypeVar("_T")


class RetryBudget:
    """Bounds the reruns of a failed batch, besides those for lack of device memory.

    Those have fewer rows each time, and so come to an end. One job at fault among n
    costs at most 2 log2 n reruns. As many without a success mean that the model fails
    on nearly everything. The total is what four jobs at fault cost, or 1.5 n if that is
    more. Running each of m jobs alone costs m, so halving ends while as many are left,
    and no job fails because of others.
    """

    def __init__(self, jobs: int) -> None:
        """Compute the budget of a batch of so many jobs, none of which succeeded."""
        self._without_success = 2 * math.ceil(math.log2(jobs))
        self._total = max(jobs + jobs // 2, 4 * self._without_success)
        self.spent = 0
        self.has_success = False

    def parts(
        self, batch: Sequence[_T], error: BasketError, waiting: int
    ) -> list[Sequence[_T]]:
        """Return the parts of a failed batch to run again; none: let it fail.

        `waiting` are the jobs of other parts that failed.
        """
        if len(batch) == 1 or not self._may_rerun(error):
            return []
        if self.spent + 2 + len(batch) + waiting > self._total:
            return [batch[place : place + 1] for place in range(len(batch))]
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]

    def _may_rerun(self, error: BasketError) -> bool:
        """Return whether a row may be at fault, and the model is not broken.

        A model that refuses rows as invalid is not.
        """
        is_refusal = isinstance(error, RefusedInput)
        # The cause of other subclasses is not a row.
        if not is_refusal and type(error) is not ModelFailed:
            return False
        is_alive = self.has_success or is_refusal
        return is_alive or self.spent + 2 <= self._without_success


def error_of_each(jobs: int, error: BasketError) -> BasketError:
    """Return the error for each of so many jobs that ran together last."""
    if jobs > 1 and isinstance(error, RefusedInput):
        # Some of them may be valid.
        return ModelFailed("the model refuses one of the inputs that ran together")
    return error
