"""Who comes back: how soon those who were just answered send again."""

from app.batching.batch_times import BatchTimes, MeanDeviation

# The share of a batch's rows that come back before the next one ends, on average,
# where waiting for them is tried.
_RETURNING = 0.9
# How many times what lay between two who came back the last few are given.
_LAST_GAPS = 8
# Weight of the newest observation.
_WEIGHT = 0.2
# What part of the time it may take them with the engine idle, of that beside a batch,
# which shares the processor with them; and how fast what was seen of it is forgotten,
# for each batch, so that waiting is tried again now and then.
_SOONER, _FORGET = 0.7, 0.003


class ReturningClients:
    """Learns from each batch when its clients were back. All times are in seconds."""

    def __init__(self) -> None:
        """Nobody was answered."""
        self._observed = 0
        # Averages: the share that comes back, the time until the last of so many rows
        # is back beside another batch, and what part of it that takes beside none.
        self._share = 0.0
        self._times = BatchTimes()
        self._sooner = _SOONER
        self._scatter_s = MeanDeviation(_WEIGHT)
        # The batch answered last: its rows, when, and those that came since.
        self.rows = 0
        self.answered_at = 0.0
        self._returned = 0
        self._last_after_s = 0.0

    def answered(self, rows: int, now: float, *, waited: bool) -> None:
        """Look out for those who are answered now.

        `waited` says whether the engine was idle while the ones before came back.
        """
        if self.rows:
            self._observe(waited=waited)
        self.rows, self.answered_at, self._returned = rows, now, 0

    def arrived(self, rows: int, now: float) -> None:
        """Count rows that come, whoever sends them."""
        if self._returned < self.rows:
            self._last_after_s = now - self.answered_at
            self._returned += rows

    def missing(self) -> int:
        """How many of the rows answered last are not back."""
        return max(self.rows - self._returned, 0)

    def are_usual(self) -> bool:
        """Say whether nearly all have come back so far."""
        return self._share >= _RETURNING

    def after_s(self, rows: int) -> float:
        """When the last of so many should be back, with the engine idle."""
        return self._sooner * self._times.expected_s(rows)

    def at_latest_s(self) -> float:
        """When those who were answered last should be back in any case.

        That is as late as ever, or by the pace at which they come this time. For the
        last few it is a few times what lay between two of the others.
        """
        pace_s = self._last_after_s / self._returned if self._returned else 0.0
        if self.are_nearly_all():
            return self._last_after_s + _LAST_GAPS * pace_s
        usual_s = self._times.expected_s(self.rows) + self._scatter_s.margin()
        return max(usual_s, pace_s * self.rows)

    def are_nearly_all(self) -> bool:
        """Say whether so many are back that the others may well have gone to think."""
        return self._returned >= _RETURNING * self.rows

    def _observe(self, *, waited: bool) -> None:
        self._observed += 1
        weight = max(_WEIGHT, 1 / self._observed)
        share = min(self._returned / self.rows, 1.0)
        self._share += weight * (share - self._share)
        if not waited:
            self._sooner += _FORGET * (_SOONER - self._sooner)
        if self.missing():
            return
        beside_s = self._times.expected_s(self.rows)
        if beside_s:
            self._scatter_s.add(self._last_after_s - beside_s)
        if not waited:
            self._times.add(self.rows, self._last_after_s)
        elif beside_s:
            part = min(self._last_after_s / beside_s, 1.0)
            self._sooner += _WEIGHT * (part - self._sooner)
