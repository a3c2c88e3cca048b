"""The share of one core's time that capturing may take in a process."""

import time
from collections.abc import Callable

# Of the time. A request of a small model takes 72 us, and to capture it takes 10 more.
_SHARE = 0.01
# Time in which nothing was captured counts for so long at most.
_SAVED_S = 2.0


class TimeBudget:
    """Grants time in advance and lets it be paid back, as a leaky bucket does.

    After work that took t seconds nothing is granted until t is the share of the time
    since the last work, or since `_SAVED_S` ago.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Store the clock, which a test replaces."""
        self._clock = clock
        self._paid_at = 0.0

    def is_left(self) -> bool:
        """Return whether more work may begin."""
        return self._clock() >= self._paid_at

    def spend(self, seconds: float) -> None:
        """Count the time that work took."""
        since = max(self._paid_at, self._clock() - _SAVED_S)
        self._paid_at = since + seconds / _SHARE
