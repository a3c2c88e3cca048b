"""A thread that makes spans, off the event loop and the batching thread."""

import logging
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)
# As many as OpenTelemetry's own queue of ended spans holds unless configured.
_MAX_WAITING = 2048
_CLOSE_WITHIN_S = 5.0


class Recorder:
    """Calls functions in their order in one thread; some are dropped under overload."""

    def __init__(self) -> None:
        """Make the thread; `start` starts it."""
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = (
            queue.SimpleQueue()
        )
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start the thread, once."""
        if not self._thread.ident:
            self._thread.start()

    def record(self, make: Callable[[], None]) -> None:
        """Call a function soon, or drop it if too many wait; any thread may call it."""
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put(make)
        else:
            self._dropped += 1

    def close(self) -> None:
        """Call all functions that still wait, and end the thread."""
        self._waiting.put(None)
        if self._thread.ident:
            self._thread.join(_CLOSE_WITHIN_S)

    def _run(self) -> None:
        while (make := self._waiting.get()) is not None:
            try:
                make()
            except Exception:  # must not end the thread
                _log.exception("a span could not be made")
            if self._waiting.empty():
                self._log_dropped()
        self._log_dropped()

    def _log_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning("%d requests or batches were too many to trace", dropped)
