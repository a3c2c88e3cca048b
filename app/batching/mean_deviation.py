"""How far estimates are off, learnt from how far they were."""

# Mean deviations that an estimate may be short of; as in Jacobson's "Congestion
# Avoidance and Control" (1988), which times packets so.
_DEVIATIONS = 4.0


class MeanDeviation:
    """The mean deviation of what came from what was expected, older ones fading."""

    def __init__(self, weight: float) -> None:
        """Nothing is known; `weight` is that of the newest error, 0 to 1."""
        self._weight = weight
        self._mean = 0.0

    def saw(self, error: float) -> None:
        """Learn from one estimate, by how much it was off."""
        self._mean += self._weight * (abs(error) - self._mean)

    def margin(self) -> float:
        """By how much an estimate may well be short, in the unit of the errors."""
        return _DEVIATIONS * self._mean
