"""How long batches take."""

import statistics
import time
from collections.abc import Callable

# A batch is run so often, or fewer times when it takes long.
_MOST_RUNS, _LEAST_RUNS, _ENOUGH_S = 15, 3, 2.0


def median_ms(
    run: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """The median time of a run in ms; a first one is not counted."""
    run()
    times_s: list[float] = []
    while len(times_s) < _LEAST_RUNS or (
        len(times_s) < _MOST_RUNS and sum(times_s) < _ENOUGH_S
    ):
        began_at = clock()
        run()
        times_s.append(clock() - began_at)
    return statistics.median(times_s) * 1000
