"""A model that fails on everything is not asked again and again.

After a few batches of which no row succeeded, a row that the model is known to compute
tells whether the model is broken or the clients' rows are. A broken one is left alone
for a while, and then asked with that row once more (the circuit breaker of Nygard's
"Release It!", 2007).
"""

import time
from collections.abc import Callable

from app.batching.model_log import ModelLog

_BATCHES = 3
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0


class CircuitBreaker:
    """Says whether a model is worth asking. Used by one thread at a time."""

    def __init__(
        self,
        probe: Callable[[], bool],
        log: ModelLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store `probe`, which runs a known good row and says whether that went well.

        A test drives `clock`.
        """
        self._probe = probe
        self._log = log
        self._clock = clock
        self._failures = 0
        self._pause_s = 0.0
        self._ask_at = 0.0

    def pause_s(self) -> float:
        """Seconds for which the model is not worth asking; 0: ask it."""
        if self._pause_s and self._clock() >= self._ask_at:
            self._ask()
        return max(self._ask_at - self._clock(), 0.0) if self._pause_s else 0.0

    def batch_failed(self) -> None:
        """Note that the model failed on each row of a batch."""
        self._failures += 1
        if self._failures >= _BATCHES:
            self._ask()

    def batch_succeeded(self) -> None:
        """Note that the model computed some row of a batch."""
        self._failures = 0

    def _ask(self) -> None:
        self._failures = 0
        if self._probe():
            if self._pause_s:
                self._log.warning("computes again")
            self._pause_s = 0.0
            return
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LAST_PAUSE_S)
        self._ask_at = self._clock() + self._pause_s
        self._log.error("fails on everything; left alone: %.0f s", self._pause_s)
