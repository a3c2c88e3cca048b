"""An estimate of the time from a batch's end to its encoded responses."""

from app.batching.batch_times import MeanDeviation

# Weight of the newest response.
_WEIGHT = 0.05
# The largest share of a call's timeout that is reserved.
MOST_RESERVED = 0.25


class ResponseOverhead:
    """The seconds from the end of a batch until its last response is encoded.

    `reserve_s` is the estimate with a margin: seconds before a deadline by which rows
    must have run. All threads share this; of two that add a response at the same time,
    one may be lost.
    """

    def __init__(self) -> None:
        """Start without an estimate."""
        self.reserve_s = 0.0
        self._mean_s = 0.0
        self._scatter_s = MeanDeviation(_WEIGHT)

    def add(self, seconds: float) -> None:
        """Add the seconds of a batch's last response."""
        error_s = seconds - self._mean_s
        self._mean_s += _WEIGHT * error_s
        self._scatter_s.add(error_s)
        self.reserve_s = self._mean_s + self._scatter_s.margin()
