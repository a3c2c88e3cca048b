"""How long batches of two versions take, measured by turns."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

# Batches of each version in a round; beyond the least, a round ends after 2 s.
_LEAST, _MOST, _ROUND_S = 5, 15, 2.0
# A version is slower if each of so many rounds says so.
_ROUNDS = 3
# A difference of less is noise of the machine, whatever factor it is.
FLOOR_S = 0.001


@dataclass(frozen=True)
class Round:
    """Seconds of batches of two versions, which ran by turns."""

    serving_s: Sequence[float]
    candidate_s: Sequence[float]

    def is_slower(self, max_slowdown: float) -> bool:
        """Return whether the new version is slower than allowed, and by 1 ms or more.

        Both the median and the shortest batch have to be: noise makes batches longer.
        """
        return all(
            of(self.candidate_s)
            > max(max_slowdown * of(self.serving_s), of(self.serving_s) + FLOOR_S)
            for of in (statistics.median, min)
        )


@dataclass(frozen=True)
class TimedBatches:
    """The times of batches of so many rows, in one round or several."""

    rows: int
    rounds: Sequence[Round]

    @property
    def serving_s(self) -> float:
        """The median of the serving version."""
        return statistics.median(chain(*(each.serving_s for each in self.rounds)))

    @property
    def candidate_s(self) -> float:
        """The median of the new version."""
        return statistics.median(chain(*(each.candidate_s for each in self.rounds)))

    def is_slower(self, max_slowdown: float) -> bool:
        """Return whether every round says that the new version is slower."""
        return all(each.is_slower(max_slowdown) for each in self.rounds)

    def describe(self, max_slowdown: float) -> str:
        """Return how much slower the new version is."""
        factor = self.candidate_s / max(self.serving_s, 1e-9)
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return (
            f"takes {factor:.2g} times as long for {rows} "
            f"({1000 * self.candidate_s:.3g} ms, {1000 * self.serving_s:.3g} ms; "
            f"max_slowdown {max_slowdown:g})"
        )


def measure(
    rows: int,
    serving_s: Callable[[], float],
    candidate_s: Callable[[], float],
    max_slowdown: float,
    is_over: Callable[[], bool],
) -> TimedBatches:
    """Return the times of a batch, of functions that run it and return its seconds.

    Both have run it before. It is measured again while the new version seems slower,
    until three rounds say so, or `is_over`.
    """
    rounds: list[Round] = []
    while not rounds or (
        len(rounds) < _ROUNDS and rounds[-1].is_slower(max_slowdown) and not is_over()
    ):
        rounds.append(_round(serving_s, candidate_s, is_over))
    return TimedBatches(rows, rounds)


def _round(
    serving_s: Callable[[], float],
    candidate_s: Callable[[], float],
    is_over: Callable[[], bool],
) -> Round:
    found: tuple[list[float], list[float]] = ([], [])
    while len(found[0]) < _MOST:
        runs = [(found[0], serving_s), (found[1], candidate_s)]
        # Neither is always the one that finds the caches of the other.
        for times, run in runs if len(found[0]) % 2 else reversed(runs):
            times.append(run())
        total = sum(found[0]) + sum(found[1])
        if is_over() or (len(found[0]) >= _LEAST and total >= _ROUND_S):
            break
    return Round(*found)
