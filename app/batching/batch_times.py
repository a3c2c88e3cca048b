"""Estimates of a batch's run time by its rows, learned from earlier batches."""

# Weight of the newest batch.
_WEIGHT = 0.1
# Rows squared; a smaller variance shows no slope.
_MIN_VARIANCE = 1e-3
# An outlier counts as at most this many times the expected time.
_OUTLIER = 3.0
# Mean deviations in a margin, as in TCP's retransmission timer: Jacobson,
# "Congestion Avoidance and Control" (1988).
_DEVIATIONS = 4.0


class MeanDeviation:
    """Exponentially weighted mean deviation of estimates from what was measured."""

    def __init__(self, weight: float) -> None:
        """Start at 0; `weight` is that of the newest error, 0 to 1."""
        self._weight = weight
        self._mean = 0.0

    def add(self, error: float) -> None:
        """Add the error of one estimate."""
        self._mean += self._weight * (abs(error) - self._mean)

    def margin(self) -> float:
        """Return how far an estimate may be too low, in the unit of the errors."""
        return _DEVIATIONS * self._mean


class BatchTimes:
    """Exponentially weighted linear regression of seconds on rows.

    Batches of a single size show no slope, and keep the last one. Nexus (SOSP 2019)
    profiles models by the same line before it serves them. One thread adds batches
    while others read; without batching, several threads add and none reads.
    """

    def __init__(self) -> None:
        self._has_batch = False
        self._rows = self._seconds = 0.0
        self._variance = self._covariance = self._slope = 0.0
        self._deviation_s = MeanDeviation(_WEIGHT)

    def add(self, rows: int, seconds: float) -> None:
        """Add one batch that ran."""
        if not self._has_batch:
            self._has_batch = True
            self._rows, self._seconds = rows, seconds
            return
        expected = self.expected_s(rows)
        seconds = min(seconds, _OUTLIER * expected) if expected else seconds
        self._deviation_s.add(seconds - expected)
        from_rows, from_seconds = rows - self._rows, seconds - self._seconds
        self._rows += _WEIGHT * from_rows
        self._seconds += _WEIGHT * from_seconds
        self._variance = (1 - _WEIGHT) * (self._variance + _WEIGHT * from_rows**2)
        self._covariance = (1 - _WEIGHT) * (
            self._covariance + _WEIGHT * from_rows * from_seconds
        )
        if self._variance > _MIN_VARIANCE:
            self._slope = max(self._covariance / self._variance, 0.0)

    def expected_s(self, rows: int) -> float:
        """Return the expected seconds of a batch, or 0 before the first has run."""
        return max(self._seconds + self._slope * (rows - self._rows), 0.0)

    def margin_s(self) -> float:
        """Return by how many seconds `expected_s` may be too low."""
        return self._deviation_s.margin()
