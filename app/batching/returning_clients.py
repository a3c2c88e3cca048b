"""Closed-loop clients: how soon the clients of a batch send their next requests."""

import math
from collections.abc import Sequence

from app.batching.batch_times import BatchTimes, MeanDeviation

# The average share of a batch's rows that return before the next one ends, from which
# on it is worth holding for them.
_RETURNING = 0.9
# How many average gaps between two returns to wait for the last few.
_LAST_GAPS = 8
# Weight of the newest observation.
_WEIGHT = 0.2
# The assumed ratio of the return time with an idle engine to that beside a running
# batch, which competes for the processor; and the share by which each batch moves the
# measured ratio towards it, so that a hold is tried again now and then.
_IDLE_RATIO, _FORGET = 0.7, 0.003

# Rows, and when they arrived, in this order.
Arrivals = Sequence[tuple[int, float]]


class ReturningClients:
    """Learns how soon clients return after each batch. All times are in seconds."""

    def __init__(self) -> None:
        self._observed = 0
        # Averages: the share of rows that return, the time until the last of so many
        # rows returns beside a running batch, and its ratio with an idle engine.
        self._share = 0.0
        self._times = BatchTimes()
        self._idle_ratio = _IDLE_RATIO
        self._deviation_s = MeanDeviation(_WEIGHT)
        # The batch answered last: its rows, when, and the rows that arrived since.
        self.rows = 0
        self.answered_at = 0.0
        self._returned = 0
        self._last_return_s = 0.0

    def answered(self, rows: int, now: float, *, waited: bool) -> None:
        """Learn from the batch before, and expect the clients of this one.

        `waited` says whether the engine was idle while the former returned.
        """
        if self.rows:
            self._observe(waited=waited)
        self.rows, self.answered_at, self._returned = rows, now, 0

    def arrived(self, arrivals: Arrivals) -> None:
        """Count rows that arrive, each with its time, from any client."""
        for rows, arrived_at in arrivals:
            if self._returned >= self.rows:
                break
            # A job may have been made before the batch's end, and be queued after it.
            self._last_return_s = max(arrived_at - self.answered_at, 0.0)
            self._returned += rows

    def missing(self) -> int:
        """Return how many of the rows answered last have not returned."""
        return max(self.rows - self._returned, 0)

    def to_await(self) -> int:
        """Return how many rows have to return until nearly all have, or all others."""
        few = math.ceil(_RETURNING * self.rows) - self._returned
        return few if few > 0 else self.missing()

    def usually_return(self) -> bool:
        """Return whether nearly all clients have returned after earlier batches."""
        return self._share >= _RETURNING

    def return_s(self, rows: int) -> float:
        """Return after how long the last of so many rows returns to an idle engine."""
        return self._idle_ratio * self._times.expected_s(rows)

    def latest_return_s(self) -> float:
        """Return after how long the rows answered last should all have returned.

        The longest usual time, or what follows from the current pace if that is
        longer. For the last few it is some average gaps after the last return.
        """
        pace_s = self._last_return_s / self._returned if self._returned else 0.0
        if self.nearly_all_returned():
            return self._last_return_s + _LAST_GAPS * pace_s
        usual_s = self._times.expected_s(self.rows) + self._deviation_s.margin()
        return max(usual_s, pace_s * self.rows)

    def nearly_all_returned(self) -> bool:
        """Return whether so many have returned that the others may be thinking."""
        return self._returned >= _RETURNING * self.rows

    def _observe(self, *, waited: bool) -> None:
        self._observed += 1
        weight = max(_WEIGHT, 1 / self._observed)
        share = min(self._returned / self.rows, 1.0)
        self._share += weight * (share - self._share)
        if not waited:
            self._idle_ratio += _FORGET * (_IDLE_RATIO - self._idle_ratio)
        if self.missing():
            return
        expected_s = self._times.expected_s(self.rows)
        if expected_s:
            self._deviation_s.add(self._last_return_s - expected_s)
        if not waited:
            self._times.add(self.rows, self._last_return_s)
        elif expected_s:
            ratio = min(self._last_return_s / expected_s, 1.0)
            self._idle_ratio += _WEIGHT * (ratio - self._idle_ratio)
