"""A cell's figures: rate, response times, mean batch, and what they compare with."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from bench.loadtest.measurement import Cell, Sample
from bench.percentile import percentile

LITTLE_LIMIT_PERCENT = 5.0

# Mean response in seconds by users: what "Optimize response time of your ML API in
# production" found on its GPU, of 0.3 s a batch. Keys are words of a set-up's name.
_ARTICLE: dict[str, dict[int, float]] = {
    "5 workers": {20: 2.05},
    "500 ms": {1: 0.8, 20: 0.68},
    "naive": {1: 0.332, 5: 0.431, 20: 4.1},
}
# Mean response in seconds by users, for one device of a constant 0.3 s a batch and a
# mean think time of 2 s: the exact optimum of a semi-Markov decision process.
_BEST = {1: 0.300, 5: 0.376, 20: 0.444, 64: 0.453}
_BEST_THINK_S = (1.0, 3.0)


@dataclass(frozen=True)
class Little:
    """Little's law, users = rate x (response + think), held against a cell.

    `deviation_percent` is how far the right side is above the left; `chance_percent`
    is two standard errors of it, from the spread of response and think times and
    from counting whole answers.
    """

    deviation_percent: float
    chance_percent: float

    @property
    def broken(self) -> bool:
        """Whether the deviation is beyond 5 percent, whatever its cause."""
        return abs(self.deviation_percent) > LITTLE_LIMIT_PERCENT

    @property
    def by_chance(self) -> bool:
        """Whether so few answers as there are could deviate as much by chance."""
        return abs(self.deviation_percent) <= self.chance_percent


@dataclass(frozen=True)
class Figures:
    """What a cell's samples say; None where there is nothing to say.

    `rate` is in answers per second, times are in seconds, `mean_batch` is in rows.
    `errors` counts the failed requests by HTTP status, 0 for those without an answer.
    `article_s` and `best_s` are means to compare `mean_s` with.
    """

    setup: str
    users: int
    answers: int
    rate: float
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    mean_batch: float | None
    errors: dict[int, int]
    little: Little | None
    article_s: float | None
    best_s: float | None
    problem: str | None

    @property
    def sound(self) -> bool:
        """Whether there are answers, and nothing went wrong."""
        return self.answers > 0 and not self.errors and self.problem is None


def figures_of(cell: Cell, *, simulated: bool) -> Figures:
    """The figures of `cell`; `simulated`: its device takes 0.3 s for any batch."""
    answered = answers_of(cell)
    times = [sample.response_s for sample in answered]
    failed = (each.status for each in cell.samples if each.status != HTTPStatus.OK)
    return Figures(
        setup=cell.setup,
        users=cell.users,
        answers=len(answered),
        rate=len(answered) / cell.measured_s if cell.measured_s > 0 else 0.0,
        mean_s=statistics.fmean(times) if times else None,
        p50_s=percentile(times, 50) if times else None,
        p95_s=percentile(times, 95) if times else None,
        p99_s=percentile(times, 99) if times else None,
        mean_batch=_mean_batch(answered),
        errors=dict(sorted(Counter(failed).items())),
        little=_little(cell),
        article_s=_article(cell.setup, cell.users),
        best_s=_BEST.get(cell.users)
        if simulated and cell.think_s == _BEST_THINK_S
        else None,
        problem=cell.problem,
    )


def answers_of(cell: Cell) -> list[Sample]:
    """The samples with status 200; only these count as responses."""
    return [sample for sample in cell.samples if sample.status == HTTPStatus.OK]


def common_load(cells: Sequence[Cell]) -> int | None:
    """The most users under whom every set-up answered; else any did; else None."""
    answered = [cell for cell in cells if answers_of(cell)]
    setups = {cell.setup for cell in cells}
    by_load: dict[int, set[str]] = {}
    for cell in answered:
        by_load.setdefault(cell.users, set()).add(cell.setup)
    common = [users for users, names in by_load.items() if names == setups]
    return max(common or by_load, default=None)


def _mean_batch(answered: Sequence[Sample]) -> float | None:
    """The mean over batches, not over requests: a row in a batch of n is 1/n of it."""
    rows = [sample.batch_rows for sample in answered if sample.batch_rows > 0]
    return statistics.harmonic_mean(rows) if rows else None


def _little(cell: Cell) -> Little | None:
    """Little's law over all samples: a user who is sent an error thinks, too."""
    times = [sample.response_s for sample in cell.samples]
    if not times or cell.measured_s <= 0 or cell.users <= 0:
        return None
    low, high = cell.think_s
    cycle_s = statistics.fmean(times) + (low + high) / 2
    in_loop = len(times) / cell.measured_s * cycle_s
    variance = statistics.pvariance(times) + (high - low) ** 2 / 12
    # The variance of a renewal process's count, n (spread / cycle)^2 + 1/6 a user.
    spread = variance / cycle_s**2 if cycle_s > 0 else 0.0
    error = math.sqrt(len(times) * spread + cell.users / 6) / len(times)
    return Little(100 * (in_loop / cell.users - 1), 200 * error)


def _article(setup: str, users: int) -> float | None:
    """The article's mean in seconds; a set-up that combines two measures has none."""
    name = setup.lower()
    if "batching" in name and "worker" in name:
        return None
    return next(
        (times.get(users) for words, times in _ARTICLE.items() if words in name), None
    )
