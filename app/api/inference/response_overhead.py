"""An estimate of the time from a batch's end to its encoded responses."""

from app.batching.batch_times import MeanDeviation

# Weight of the newest response.
_WEIGHT = 0.05
# The largest share of a request's timeout that is reserved.
_MOST = 0.25


class ResponseOverhead:
    """The seconds from the end of a batch until a response is encoded.

    The responses of a batch are encoded one after the other, so the last one is late.
    All request threads share this; of two that add a response at the same time, one may
    be lost.
    """

    def __init__(self) -> None:
        """Start without an estimate."""
        self._mean_s = 0.0
        self._scatter_s = MeanDeviation(_WEIGHT)

    def add(self, seconds: float) -> None:
        """Add the seconds of one response."""
        error_s = seconds - self._mean_s
        self._mean_s += _WEIGHT * error_s
        self._scatter_s.add(error_s)

    def reserve_s(self, timeout_s: float) -> float:
        """Return the seconds before a deadline by which rows must have run."""
        return min(self._mean_s + self._scatter_s.margin(), _MOST * timeout_s)
