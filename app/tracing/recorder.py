"""A thread that makes spans, off the event loop and the batching thread."""

import logging
from collections.abc import Callable, Sequence

from app.background import Background, BackgroundLimits

_log = logging.getLogger(__name__)
# A wake-up for each span would take the event loop longer than all else here. As many
# wait as OpenTelemetry's own queue of ended spans holds unless configured.
_BOUNDS = BackgroundLimits(0.01, 512, 1 << 30, 2048, 1 << 31)
_CLOSE_WITHIN_S = 5.0


class SpanRecorder:
    """Calls functions in their order in one thread; some are dropped under overload."""

    def __init__(self, bounds: BackgroundLimits = _BOUNDS) -> None:
        """Start without any; the thread starts with the first one."""
        self._dropped = 0
        self._background = Background("traces", self._make, bounds)

    def record(self, make: Callable[[], None]) -> None:
        """Call a function soon, or drop it if too many wait; any thread may call it."""
        if not self._background.offer(make):
            self._dropped += 1

    def close(self) -> None:
        """Call all functions that still wait, and end the thread."""
        self._background.close(_CLOSE_WITHIN_S)

    def _make(self, waiting: Sequence[Callable[[], None]]) -> None:
        for make in waiting:
            try:
                make()
            except Exception:  # must not end the thread
                _log.exception("a span could not be made")
        dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning("%d requests or batches were too many to trace", dropped)
