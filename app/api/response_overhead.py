"""How long answers take on their way out, learnt from those that went."""

from app.batching.batch_times import MeanDeviation

# Of the newest answer.
_WEIGHT = 0.05
# The share of a request's time that may be kept for the way back.
_MOST = 0.25


class ResponseOverhead:
    """From the end of a batch until an answer is encoded.

    After each batch as many request threads wake up as it had requests, so that the
    last of them is some time later than the batch. Used by all request threads; what
    two of them learn at the same time may count once.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._mean_s = 0.0
        self._scatter_s = MeanDeviation(_WEIGHT)

    def took(self, seconds: float) -> None:
        """Learn from one answer."""
        error_s = seconds - self._mean_s
        self._mean_s += _WEIGHT * error_s
        self._scatter_s.add(error_s)

    def reserve_s(self, timeout_s: float) -> float:
        """Of a request's time, the seconds before its end at which rows must be run."""
        return min(self._mean_s + self._scatter_s.margin(), _MOST * timeout_s)
