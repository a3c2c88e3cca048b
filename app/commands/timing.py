"""Measures how long batches take."""

import statistics
import time
from collections.abc import Callable

# Runs stop after the maximum, or after the minimum and 2 s.
_MAX_RUNS, _MIN_RUNS, _ENOUGH_S = 15, 3, 2.0


def median_ms(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median duration of `run` in ms; the first run is a warm-up."""
    run()
    times_s: list[float] = []
    while len(times_s) < _MIN_RUNS or (
        len(times_s) < _MAX_RUNS and sum(times_s) < _ENOUGH_S
    ):
        began_at = clock()
        run()
        times_s.append(clock() - began_at)
    return statistics.median(times_s) * 1000
