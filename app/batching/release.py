"""When a batch starts: the rules that a queue asks while its engine is idle."""

from collections.abc import Callable
from typing import Protocol

from app.batching.returning_clients import ReturningClients
from app.settings import Settings


class Release(Protocol):
    """A rule. All times are seconds on the monotonic clock."""

    def arrived(self, rows: int, now: float) -> None:
        """So many rows came, whether the engine is idle or not."""
        ...

    def finished(self, rows: int, now: float) -> None:
        """The engine has finished a batch of so many rows; nobody has been told."""
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


# How much less time one batch of all must take than two.
_GAIN = 1.1
# For the scheduler, beside what returns scatter; no hold is worth less.
_JITTER_S = 0.001
# Batches without holding after a hold in vain: four, each time twice as many.
_FIRST_PENALTY, _LAST_PENALTY = 4, 256


class Adaptive:
    """Start at once, unless those who were just answered are about to come back.

    With clients that think between requests, starting at once is within 1.1 % of the
    best mean that any rule can reach (Deb and Serfozo, 1973, give the optimal control
    limit). Clients that come back at once split under it into two groups that take
    turns, each of which waits for the other's batch: up to twice the time. This rule
    sees them come back, and waits the few milliseconds in which they do, as long as
    one batch of all of them, with that wait, takes clearly less time than two. A hold
    in which they do not come makes it start at once for the next batches. Nothing to
    tune.
    """

    def __init__(self, expected_s: Callable[[int], float]) -> None:
        """Store what gives the seconds to expect of a batch by its rows."""
        self._expected_s = expected_s
        self._returns = ReturningClients()
        # Whether the next batch is held, and whether it started without who was
        # waited for.
        self._held = self._in_vain = False
        self._penalty = self._without_hold = 0

    def arrived(self, rows: int, now: float) -> None:
        """Count rows that come after a batch was answered."""
        self._returns.arrived(rows, now)

    def finished(self, rows: int, now: float) -> None:
        """Begin to look out for those who are answered now."""
        self._returns.answered(rows, now, waited=self._held)
        if not self._held:
            self._without_hold = max(self._without_hold - 1, 0)
        elif self._in_vain:
            self._penalty = min(2 * self._penalty + _FIRST_PENALTY, _LAST_PENALTY)
            self._without_hold = self._penalty
        else:
            self._penalty = max(self._penalty - 1, 0)
        self._held = self._in_vain = False

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """The time in which all who were just answered should be back."""
        del oldest_at
        missing = self._returns.missing()
        if not missing:
            return 0.0
        hold_s = (
            0.0 if self._without_hold else self._worth_holding_s(rows, missing, now)
        )
        if hold_s > 0:
            self._held = True
        else:
            self._in_vain = self._held and not self._returns.are_nearly_all()
        return hold_s

    def _worth_holding_s(self, rows: int, missing: int, now: float) -> float:
        """How long to wait for those who are missing; 0 or less: not at all."""
        returns, together = self._returns, rows + missing
        one_s = self._expected_s(together)
        two_s = self._expected_s(rows) + self._expected_s(missing)
        # Once they are together, all have to come back each time.
        whole_s = one_s + returns.after_s(together)
        saved_s = two_s - one_s
        if not returns.are_usual() or saved_s < _JITTER_S or two_s < _GAIN * whole_s:
            return 0.0
        back_after_s = min(returns.at_latest_s() + _JITTER_S, saved_s)
        return returns.answered_at + back_after_s - now


def release_for(settings: Settings, expected_s: Callable[[int], float]) -> Release:
    """The rule that `batch_timeout_micros` asks for."""
    if settings.batch_timeout_micros is None:
        return Adaptive(expected_s)
    return FixedTimeout(settings.batch_timeout_micros / 1e6)
