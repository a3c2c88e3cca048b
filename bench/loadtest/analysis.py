"""Samples of a load test, the figures computed from them, and costs."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from bench.figures import percentile

LITTLE_LIMIT_PERCENT = 5.0
HOURS_A_MONTH = 720  # 30 days, as the article calculates
# Mean response in seconds by users, as "Optimize response time of your ML API in
# production" measured it on its GPU of 0.3 s a batch. Keys are words of set-up names.
_ARTICLE: dict[str, dict[int, float]] = {
    "5 workers": {20: 2.05},
    "500 ms": {1: 0.8, 20: 0.68},
    "naive": {1: 0.332, 5: 0.431, 20: 4.1},
}
# Mean response in seconds by users, for one device of 0.3 s a batch and a mean think
# time of 2 s: the exact optimum of a semi-Markov decision process.
_BEST = {1: 0.300, 5: 0.376, 20: 0.444, 64: 0.453}
_BEST_THINK_S = (1.0, 3.0)


class Sample(NamedTuple):
    """One answered request.

    `at_s` is when the answer came, in seconds since the measurement began; `status`
    is 0 if no answer came; `batch_rows` is the answer's X-Batch-Size, 0 if missing.
    """

    at_s: float
    response_s: float
    status: int
    batch_rows: int


@dataclass
class Cell:
    """One set-up under one load; a cell with a problem may still have samples.

    `think_s` is the range of the uniform think time in seconds, (0, 0) without.
    """

    setup: str
    users: int
    think_s: tuple[float, float]
    measured_s: float
    samples: list[Sample] = field(default_factory=list)
    problem: str | None = None

    @property
    def answers(self) -> list[Sample]:
        """The samples with status 200; only these count as responses."""
        return [sample for sample in self.samples if sample.status == HTTPStatus.OK]


@dataclass
class Campaign:
    """All cells of one load test; `machine` maps words to what was found.

    `stopped`: the run was interrupted.
    """

    command: str
    model: str
    simulated: bool
    date: str
    machine: dict[str, str]
    cells: list[Cell] = field(default_factory=list)
    stopped: bool = False


@dataclass(frozen=True)
class Little:
    """Little's law, users = rate x (response + think), applied to a cell.

    `deviation_percent` is how far the right side is above the left. `chance_percent`
    is two standard errors of it, from the spread of response and think times and from
    counting whole answers.
    """

    deviation_percent: float
    chance_percent: float

    @property
    def broken(self) -> bool:
        """Whether the deviation is beyond 5 percent."""
        return abs(self.deviation_percent) > LITTLE_LIMIT_PERCENT

    @property
    def by_chance(self) -> bool:
        """Whether so few answers may deviate as much by chance."""
        return abs(self.deviation_percent) <= self.chance_percent


@dataclass(frozen=True)
class Figures:
    """The figures of a cell, None where there are no answers; `rate` in answers/s.

    `errors` counts failed requests by status. `article_s` and `best_s` are means to
    compare `mean_s` with.
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
    """Return a cell's figures; `simulated`: its device takes 0.3 s for any batch."""
    times = [sample.response_s for sample in cell.answers]
    rows = [sample.batch_rows for sample in cell.answers if sample.batch_rows > 0]
    failed = (each.status for each in cell.samples if each.status != HTTPStatus.OK)
    is_best_known = simulated and cell.think_s == _BEST_THINK_S
    return Figures(
        setup=cell.setup,
        users=cell.users,
        answers=len(times),
        rate=len(times) / cell.measured_s if cell.measured_s > 0 else 0.0,
        mean_s=statistics.fmean(times) if times else None,
        p50_s=percentile(times, 50) if times else None,
        p95_s=percentile(times, 95) if times else None,
        p99_s=percentile(times, 99) if times else None,
        # Over batches, not over requests: a row in a batch of n counts as 1/n batch.
        mean_batch=statistics.harmonic_mean(rows) if rows else None,
        errors=dict(sorted(Counter(failed).items())),
        little=_little(cell),
        article_s=_article(cell.setup, cell.users),
        best_s=_BEST.get(cell.users) if is_best_known else None,
        problem=cell.problem,
    )


def common_load(cells: Sequence[Cell]) -> int | None:
    """Return the most users whom every set-up answered, else any set-up, else None."""
    setups = {cell.setup for cell in cells}
    by_load: dict[int, set[str]] = {}
    for cell in cells:
        if cell.answers:
            by_load.setdefault(cell.users, set()).add(cell.setup)
    common = [users for users, names in by_load.items() if names == setups]
    return max(common or by_load, default=None)


def _little(cell: Cell) -> Little | None:
    """Apply Little's law to all samples: a user thinks after an error, too."""
    times = [sample.response_s for sample in cell.samples]
    if not times or cell.measured_s <= 0 or cell.users <= 0:
        return None
    low, high = cell.think_s
    cycle_s = statistics.fmean(times) + (low + high) / 2
    in_loop = len(times) / cell.measured_s * cycle_s
    variance = statistics.pvariance(times) + (high - low) ** 2 / 12
    # The variance of a renewal process's count: n (spread / cycle)^2 + 1/6 per user.
    spread = variance / cycle_s**2 if cycle_s > 0 else 0.0
    error = math.sqrt(len(times) * spread + cell.users / 6) / len(times)
    return Little(100 * (in_loop / cell.users - 1), 200 * error)


def _article(setup: str, users: int) -> float | None:
    """Return the article's mean in seconds; it measured no batching with workers."""
    if "batching" in setup and "worker" in setup:
        return None
    return next(
        (times.get(users) for words, times in _ARTICLE.items() if words in setup), None
    )


@dataclass(frozen=True)
class Wanted:
    """Dollars per instance-hour, largest p95 in seconds, total requests per second."""

    price_usd: float
    p95_limit_s: float
    target_rate: float

    def bill(self, rate: float) -> tuple[int, float]:
        """Return the number of instances of `rate` requests/s, and dollars a month."""
        instances = math.ceil(self.target_rate / rate)
        return instances, instances * self.price_usd * HOURS_A_MONTH


def best_loads(
    rows: Sequence[Figures], p95_limit_s: float
) -> dict[str, Figures | None]:
    """Return each set-up's row with the highest rate and a p95 within the limit.

    A row with errors or a problem does not count.
    """
    found: dict[str, Figures | None] = {row.setup: None for row in rows}
    for row in sorted(rows, key=lambda row: row.rate):
        if row.sound and row.p95_s is not None and row.p95_s <= p95_limit_s:
            found[row.setup] = row
    return found
