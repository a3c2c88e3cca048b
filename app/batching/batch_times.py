"""How long something takes by the rows of a batch, learnt from batches before."""

from app.batching.mean_deviation import MeanDeviation

_FADE = 0.1
# Rows, squared: below it there is no slope to see.
_LEAST_VARIANCE = 1e-3
# An outlier counts as at most so many times what was expected.
_OUTLIER = 3.0


class BatchTimes:
    """A line through rows and seconds in which older batches fade.

    Where all are of one size, which shows no slope, it keeps the one that it had.
    Nexus (SOSP 2019) describes what the engine takes by the same line, and measures
    it before it serves. One thread feeds it, and others may read; without batching
    several feed it, and nobody reads.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._known = False
        self._rows = self._seconds = 0.0
        self._variance = self._covariance = self._slope = 0.0
        self._scatter_s = MeanDeviation(_FADE)

    def saw(self, rows: int, seconds: float) -> None:
        """Learn from one batch."""
        if not self._known:
            self._known = True
            self._rows, self._seconds = rows, seconds
            return
        expected = self.of(rows)
        seconds = min(seconds, _OUTLIER * expected) if expected else seconds
        self._scatter_s.saw(seconds - expected)
        from_rows, from_seconds = rows - self._rows, seconds - self._seconds
        self._rows += _FADE * from_rows
        self._seconds += _FADE * from_seconds
        self._variance = (1 - _FADE) * (self._variance + _FADE * from_rows**2)
        self._covariance = (1 - _FADE) * (
            self._covariance + _FADE * from_rows * from_seconds
        )
        if self._variance > _LEAST_VARIANCE:
            self._slope = max(self._covariance / self._variance, 0.0)

    def of(self, rows: int) -> float:
        """The seconds to expect of a batch; 0 before the first has run."""
        return max(self._seconds + self._slope * (rows - self._rows), 0.0)

    def margin_s(self) -> float:
        """By how many seconds `of` may well be short."""
        return self._scatter_s.margin()
