"""Figures of one measurement, and their medians over rounds."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple

import numpy as np

# Seconds between an answer and a user's next request, uniform.
THINK_S = (1.0, 3.0)
# Requests per second from which tables show no decimals.
_LARGE_RATE = 100


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least value that `percent` of them do not exceed, 0 of no values.

    This is the nearest rank: a measured value, never one between two.
    """
    if not values:
        return 0.0
    return float(np.percentile(values, percent, method="inverted_cdf"))


class Timing(NamedTuple):
    """Seconds of a measurement: warm-up, which is not counted, and the rest."""

    warm_up_s: float
    measured_s: float


@dataclass(frozen=True)
class Clients:
    """Simultaneous clients that send again after each answer.

    `thinks`: only after a think time of 1 to 3 s.
    """

    count: int
    thinks: bool = False

    def __str__(self) -> str:
        noun = "client" if self.count == 1 else "clients"
        return f"{self.count} {'thinking ' if self.thinks else ''}{noun}"


@dataclass(frozen=True)
class Seen:
    """What clients saw in one measurement.

    `rate` counts requests answered with 2xx per second; times are in seconds.
    `errors` counts requests without an answer, `not_2xx` those with another status;
    of `checked` answers, `wrong` were not the model's. `batch_rows` is the mean size
    of a batch, None if the server does not report it.
    """

    HEADING: ClassVar = (
        *("requests/s", "mean (ms)", "median (ms)", "p95 (ms)", "p99 (ms)"),
        *("rows in a batch", "failed", "wrong"),
    )

    rate: float = 0.0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    errors: int = 0
    not_2xx: int = 0
    checked: int = 0
    wrong: int = 0
    batch_rows: float | None = None

    @property
    def failed(self) -> int:
        """Requests without an answer, with another status, or with a wrong answer."""
        return self.errors + self.not_2xx + self.wrong

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table whose columns are HEADING."""
        times_s = (self.mean_s, self.p50_s, self.p95_s, self.p99_s)
        return (
            f"{self.rate:.0f}" if self.rate >= _LARGE_RATE else f"{self.rate:.2f}",
            *(f"{1000 * each_s:.2f}" for each_s in times_s),
            "-" if self.batch_rows is None else f"{self.batch_rows:.1f}",
            *(str(self.errors + self.not_2xx), f"{self.wrong} of {self.checked}"),
        )

    def __str__(self) -> str:
        text = f"{self.rate:,.1f} requests/s, mean {self.mean_s * 1000:.0f} ms"
        return text + (f", {self.failed} FAILED OR WRONG" if self.failed else "")


@dataclass(frozen=True)
class Cell:
    """One server under one load in one round, 0 of a run without rounds.

    `problem`: why nothing was measured.
    """

    load: str
    server: str
    setting: str
    clients: Clients
    round: int
    seen: Seen = field(default_factory=Seen)
    problem: str | None = None

    @property
    def sound(self) -> bool:
        """Whether it was measured, and every answer came and was right."""
        return not (self.problem or self.seen.failed) and self.seen.rate > 0

    @property
    def title(self) -> str:
        """What is measured, for a line of progress."""
        words = (self.load, self.server, self.setting, str(self.clients))
        name = ", ".join(filter(None, words))
        return f"{name}, round {self.round}" if self.round else name

    def complaint(self) -> str:
        """Return why the cell is not sound."""
        seen = self.seen
        return self.problem or (
            f"{self.clients}: {seen.errors} without an answer, {seen.not_2xx} not "
            f"2xx, {seen.wrong} wrong of {seen.checked} checked, {seen.rate:.2f} "
            "right per second"
        )


def best_setting(cells: Iterable[Cell]) -> str | None:
    """Return the setting with the highest rate in the first round, if any had one."""
    first = [cell for cell in cells if cell.round == 1 and cell.seen.rate]
    return max(first, key=lambda cell: cell.seen.rate).setting if first else None


def medians(cells: Sequence[Cell]) -> list[Cell]:
    """Return one Cell for each server, load and clients: its best setting's medians.

    Counts are sums over the rounds; `round` is the number of rounds.
    """
    groups: dict[object, list[Cell]] = {}
    for cell in cells:
        key = (cell.load, cell.server, cell.clients)
        groups.setdefault(key, []).append(cell)
    return list(map(_median, groups.values()))


def _median(cells: list[Cell]) -> Cell:
    setting = best_setting(cells)
    used = [c for c in cells if c.setting == setting and not c.problem]
    if not used:
        return cells[-1]
    values = {}
    for each in fields(Seen):
        found = [getattr(cell.seen, each.name) for cell in used]
        known = [value for value in found if value is not None] or [None]
        combine = sum if isinstance(each.default, int) else statistics.median
        values[each.name] = combine(known)
    problem = next((cell.problem for cell in cells if cell.problem), None)
    return replace(used[0], round=len(used), seen=Seen(**values), problem=problem)
