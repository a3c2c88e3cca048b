"""What was measured: a Cell for each server, load, number of clients and round."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.peers.loads import Clients


@dataclass(frozen=True)
class Cell:
    """One server under one load, once.

    `rate` counts requests answered with 2xx in a second, latencies are in seconds.
    `errors` counts requests without an answer, `not_2xx` those with another status;
    of `asked` answers that were looked at, `wrong` were not the model's.
    `batch_rows` is the mean size of a batch, None where the server does not say.
    `problem`: why nothing was measured.
    """

    load: str
    server: str
    setting: str
    clients: Clients
    round: int
    rate: float = 0.0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0
    errors: int = 0
    not_2xx: int = 0
    asked: int = 0
    wrong: int = 0
    batch_rows: float | None = None
    problem: str | None = None

    @property
    def sound(self) -> bool:
        """Whether all was answered, and right."""
        return not (self.problem or self.errors or self.not_2xx or self.wrong)


@dataclass(frozen=True)
class Bare:
    """The engine of a server's model without the server, `rows` in each batch.

    `served` are the rows that the server answered in a second in the same round, and
    `bare` those that the engine computes by itself.
    """

    load: str
    server: str
    round: int
    rows: int
    served: float
    bare: float


@dataclass
class Campaign:
    """All of one run, and what it was measured on; `date` is ISO 8601."""

    command: str
    date: str
    machine: dict[str, str]
    seconds: float
    rounds: int
    cells: list[Cell] = field(default_factory=list)
    bare: list[Bare] = field(default_factory=list)
    stopped: bool = False

    def as_json(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self)


def best_setting(cells: Iterable[Cell]) -> str | None:
    """The setting with the most answers in the first round; None: none had any."""
    first = [cell for cell in cells if cell.round == 1 and cell.rate]
    return max(first, key=lambda cell: cell.rate).setting if first else None


def summed_up(cells: Sequence[Cell]) -> list[Cell]:
    """One Cell for each server, load and clients: its best setting's medians.

    Errors and looks are the sums over its rounds; `round` is how many there were.
    """
    kinds = dict.fromkeys((cell.load, cell.server, cell.clients) for cell in cells)
    return [
        _middle([c for c in cells if (c.load, c.server, c.clients) == kind])
        for kind in kinds
    ]


def _middle(cells: list[Cell]) -> Cell:
    setting = best_setting(cells)
    used = [c for c in cells if c.setting == setting and not c.problem]
    if not used:
        return cells[-1]

    def median(value: Callable[[Cell], float]) -> float:
        return statistics.median(map(value, used))

    sizes = [cell.batch_rows for cell in used if cell.batch_rows is not None]
    return Cell(
        used[0].load,
        used[0].server,
        used[0].setting,
        used[0].clients,
        len(used),
        rate=median(lambda cell: cell.rate),
        mean_s=median(lambda cell: cell.mean_s),
        p50_s=median(lambda cell: cell.p50_s),
        p95_s=median(lambda cell: cell.p95_s),
        p99_s=median(lambda cell: cell.p99_s),
        errors=sum(cell.errors for cell in used),
        not_2xx=sum(cell.not_2xx for cell in used),
        asked=sum(cell.asked for cell in used),
        wrong=sum(cell.wrong for cell in used),
        batch_rows=statistics.median(sizes) if sizes else None,
        problem=next((c.problem for c in cells if c.problem), None),
    )
