"""A circuit breaker for a model that fails on every batch.

After a few batches without a success, a known good row tells whether the model is
broken or the clients' rows are bad. A broken model gets no batches for a while, and is
then probed with that row again (Nygard, "Release It!", 2007).
"""

import time
from collections.abc import Callable

from app.batching.model_log import ModelLog

_MAX_FAILURES = 3
_MIN_PAUSE_S = 1.0
_MAX_PAUSE_S = 30.0


class CircuitBreaker:
    """Decides whether a model gets batches. For one thread at a time."""

    def __init__(
        self,
        probe: Callable[[], bool],
        log: ModelLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store `probe`, which runs a known good row and returns whether it succeeded.

        A test replaces `clock`.
        """
        self._probe = probe
        self._log = log
        self._clock = clock
        self._failures = 0
        # 0: the circuit is closed.
        self._pause_s = 0.0
        self._probe_at = 0.0

    def pause_s(self) -> float:
        """Return for how many seconds to run no batch; 0: run it."""
        if not self._pause_s:
            return 0.0
        if self._clock() >= self._probe_at:
            self._run_probe()
        return max(self._probe_at - self._clock(), 0.0) if self._pause_s else 0.0

    def batch_failed(self) -> None:
        """Count a batch of which no row succeeded."""
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            self._run_probe()

    def batch_succeeded(self) -> None:
        """Reset the count: a row of a batch succeeded."""
        self._failures = 0

    def _run_probe(self) -> None:
        self._failures = 0
        if self._probe():
            if self._pause_s:
                self._log.warning("computes again")
            self._pause_s = 0.0
            return
        self._pause_s = min(max(2 * self._pause_s, _MIN_PAUSE_S), _MAX_PAUSE_S)
        self._probe_at = self._clock() + self._pause_s
        self._log.error("fails on everything; left alone: %.0f s", self._pause_s)
