"""When a batch starts: the rules that a queue asks while its engine is idle."""

from typing import Protocol

from app.serving.batch_times import BatchTimes
from app.serving.scatter import Scatter
from app.settings import Settings


class Release(Protocol):
    """A rule. All times are seconds on the monotonic clock."""

    def arrived(self, rows: int, now: float) -> None:
        """So many rows came, whether the engine is idle or not."""
        ...

    def finished(self, rows: int, now: float) -> None:
        """The engine has finished a batch of so many rows, which are answered."""
        ...

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """Seconds to go on gathering; 0 or less: start now.

        Asked only while the engine is idle and a batch is not full: `rows` wait, the
        oldest since `oldest_at`.
        """
        ...


class FixedTimeout:
    """Start, if no full batch has before, when the oldest row is `timeout_s` old.

    The rule of the article that Basket starts from, and of TensorFlow Serving's
    BasicBatchScheduler. The age counts from arrival, so time that a row spent
    behind a running batch is not waited for again.
    """

    def __init__(self, timeout_s: float) -> None:
        """Store the limit, in seconds."""
        self._timeout_s = timeout_s

    def arrived(self, rows: int, now: float) -> None:
        """Nothing to learn."""

    def finished(self, rows: int, now: float) -> None:
        """Nothing to learn."""

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """What is left of the timeout."""
        del rows
        return oldest_at + self._timeout_s - now


# Of the fixed part of a batch's time: how long the clients of a batch are waited for.
_WINDOW = 1 / 3
# The share of them that has come back so soon, on average, where holding is tried.
_RETURNING = 0.9
# How much less time one batch must take than two.
_GAIN = 1.3
# Weight of the newest observation.
_WEIGHT = 0.2
# For the scheduler, beside what they scatter.
_JITTER_S = 0.001
# Batches without holding after a hold in vain: four, each time twice as many.
_FIRST_PENALTY, _LAST_PENALTY = 4, 256


class Adaptive:
    """Start at once, unless those who were just answered are about to come back.

    With clients that think between requests, starting at once is within 1.1 % of the
    best mean that any rule can reach (Deb and Serfozo, 1973, give the optimal control
    limit). Clients that come back at once split under it into two alternating halves,
    each of which waits for the other's batch: up to twice the time. This rule sees
    them come back, and waits the few milliseconds in which they do, as long as one
    batch then takes clearly less time than two. A hold in which they do not come
    makes it start at once for the next batches. Nothing to tune.
    """

    def __init__(self, times: BatchTimes) -> None:
        """Store `times`, which learns how long batches take."""
        self._times = times
        self._observed = 0
        # Averages: of the share of a batch's rows that come back within the window,
        # of the seconds after which the last one does, and how far these scatter.
        self._share = self._last_after_s = 0.0
        self._scatter_s = Scatter(_WEIGHT)
        # The batch answered last: when, its rows, and those that came since.
        self._answered_at: float | None = None
        self._rows = self._returned = 0
        self._last_return_s = self._window_s = 0.0
        self._held = False
        self._penalty = self._without_hold = 0

    def arrived(self, rows: int, now: float) -> None:
        """Count rows that come soon after a batch was answered."""
        if self._answered_at is None:
            return
        after_s = now - self._answered_at
        if after_s > self._window_s:
            self._observe()
            return
        if self._returned < self._rows:
            self._last_return_s = after_s
        self._returned += rows

    def finished(self, rows: int, now: float) -> None:
        """Begin to look out for those who are answered now."""
        if self._answered_at is not None:
            self._observe()
        self._answered_at, self._rows, self._returned = now, rows, 0
        self._window_s = _WINDOW * self._times.of(0)

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """The time in which all who were just answered should be back."""
        del oldest_at
        missing = self._rows - self._returned
        if (
            self._answered_at is None
            or missing <= 0
            or self._share < _RETURNING
            or self._without_hold
        ):
            return 0.0
        back_after_s = self._last_after_s + self._scatter_s.margin() + _JITTER_S
        left_s = self._answered_at + min(back_after_s, self._window_s) - now
        two_s = self._times.of(rows) + self._times.of(missing)
        if left_s <= 0 or two_s < _GAIN * (self._times.of(rows + missing) + left_s):
            return 0.0
        self._held = True
        return left_s

    def _observe(self) -> None:
        """Learn from those who came back after the last batch."""
        self._answered_at = None
        self._observed += 1
        weight = max(_WEIGHT, 1 / self._observed)
        share = min(self._returned / self._rows, 1.0)
        self._share += weight * (share - self._share)
        if self._returned:
            error_s = self._last_return_s - self._last_after_s
            self._scatter_s.saw(error_s)
            self._last_after_s += weight * error_s
        if not self._held:
            self._without_hold = max(self._without_hold - 1, 0)
        elif self._returned < self._rows:
            self._penalty = min(2 * self._penalty + _FIRST_PENALTY, _LAST_PENALTY)
            self._without_hold = self._penalty
        else:
            self._penalty = max(self._penalty - 1, 0)
        self._held = False


def release_for(settings: Settings, times: BatchTimes) -> Release:
    """The rule that `batch_timeout_micros` asks for."""
    if settings.batch_timeout_micros is None:
        return Adaptive(times)
    return FixedTimeout(settings.batch_timeout_micros / 1e6)
