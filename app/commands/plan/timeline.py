"""Virtual time: a clock, and the events to come."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Timeline:
    """Runs events in order of time; those of equal time in the order of `at`."""

    def __init__(self) -> None:
        """Start at 0 s, without events."""
        self.now = 0.0
        self._stopped = False
        self._events: list[tuple[float, int, Callable[..., object], Any]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        """Return the virtual time in seconds."""
        return self.now

    def at(self, when: float, event: Callable[..., object], *given: Any) -> None:
        """Call `event(*given)` at `when`, in seconds."""
        heapq.heappush(self._events, (when, next(self._numbers), event, given))

    def run(self) -> None:
        """Run events until one of them calls `stop`, or there are no more."""
        self._stopped = False
        events = self._events
        while events and not self._stopped:
            self.now, _, event, given = heapq.heappop(events)
            event(*given)

    def stop(self) -> None:
        """End `run` after this event."""
        self._stopped = True
