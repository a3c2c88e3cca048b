"""Release rules: when a batch that is not full starts on an idle engine."""

import math
from collections.abc import Callable

from app.batching.returning_clients import Arrivals, ReturningClients
from app.settings import Settings


class Release:
    """A release rule. All times are seconds on the monotonic clock."""

    def arrived(self, arrivals: Arrivals) -> None:
        """Learn from requests' rows.

        Those that arrive beside a batch are told before its end, and all others
        before the next `hold_s`.
        """

    def finished(self, rows: int, now: float) -> None:
        """Learn that a batch of `rows` has run; its jobs are not notified yet."""

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """Return for how many seconds to hold the batch; 0 or less: start it now.

        Called only while the engine is idle and the batch is not full: `rows` are
        queued, the oldest since `oldest_at`.
        """
        raise NotImplementedError

    def rows_to_await(self) -> float:
        """Return how many more rows may end the hold; inf: only a full batch does."""
        return math.inf


class FixedTimeout(Release):
    """Start a batch when its oldest row is `timeout_s` old.

    The rule of TensorFlow Serving's BasicBatchScheduler. The age counts from arrival,
    so that the time spent behind a running batch counts, too.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """Return the rest of the timeout."""
        del rows
        return oldest_at + self._timeout_s - now


# How many times as long two batches must take as a single one with the hold.
_MIN_GAIN = 1.1
# For the scheduler; a hold that saves less is not worth it.
_JITTER_S = 0.001
# Batches without a hold after one that failed: four, and after each further one twice
# as many and four.
_FIRST_PENALTY, _MAX_PENALTY = 4, 256


class Adaptive(Release):
    """Start a batch at once, unless the clients just answered are about to return.

    With clients that think between requests, starting at once is within 1.1 % of the
    best mean that any rule can reach (Deb and Serfozo, 1973, give the optimal control
    limit). Under it, closed-loop clients without think time split into two groups,
    each of which waits for the other's batch: up to twice the time. This rule learns
    how soon clients return, and holds for those milliseconds as long as a single
    batch of all of them, with the hold, takes clearly less time than two. After a hold
    in which they do not return, the next batches start at once. It has no parameters.
    """

    def __init__(self, expected_s: Callable[[int], float]) -> None:
        """Store `expected_s`, which estimates a batch's seconds by its rows."""
        self._expected_s = expected_s
        self._clients = ReturningClients()
        # Whether the next batch was held, and started without those clients.
        self._held = self._hold_failed = False
        self._penalty = self._batches_without_hold = 0

    def arrived(self, arrivals: Arrivals) -> None:
        """Count rows that arrive after a batch."""
        self._clients.arrived(arrivals)

    def finished(self, rows: int, now: float) -> None:
        """Learn from the batch that ended; its clients may return from now on."""
        self._clients.answered(rows, now, waited=self._held)
        if not self._held:
            self._batches_without_hold = max(self._batches_without_hold - 1, 0)
        elif self._hold_failed:
            self._penalty = min(2 * self._penalty + _FIRST_PENALTY, _MAX_PENALTY)
            self._batches_without_hold = self._penalty
        else:
            self._penalty = max(self._penalty - 1, 0)
        self._held = self._hold_failed = False

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """Return in how many seconds the clients just answered should have returned."""
        del oldest_at
        missing = self._clients.missing()
        if not missing:
            return 0.0
        hold_s = 0.0
        if not self._batches_without_hold:
            hold_s = self._useful_hold_s(rows, missing, now)
        if hold_s > 0:
            self._held = True
        else:
            self._hold_failed = self._held and not self._clients.nearly_all_returned()
        return hold_s

    def rows_to_await(self) -> float:
        """Return how many clients make the next difference to the hold."""
        return self._clients.to_await()

    def _useful_hold_s(self, rows: int, missing: int, now: float) -> float:
        """Return for how long to hold for missing rows; 0 or less: not at all."""
        clients, together = self._clients, rows + missing
        one_s = self._expected_s(together)
        two_s = self._expected_s(rows) + self._expected_s(missing)
        # Once they share a batch, all of them have to return each time.
        cycle_s = one_s + clients.return_s(together)
        saved_s = two_s - one_s
        if saved_s < _JITTER_S or two_s < _MIN_GAIN * cycle_s:
            return 0.0
        if not clients.usually_return():
            return 0.0
        back_after_s = min(clients.latest_return_s() + _JITTER_S, saved_s)
        return clients.answered_at + back_after_s - now


def release_for(settings: Settings, expected_s: Callable[[int], float]) -> Release:
    """Return the rule that `batch_timeout_micros` selects."""
    if settings.batch_timeout_micros is None:
        return Adaptive(expected_s)
    return FixedTimeout(settings.batch_timeout_micros / 1e6)
