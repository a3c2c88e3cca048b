"""Basket's own aims, held against what a run measured. docs/performance.md lists them.

Most are ratios within one run, so that they say something on any machine.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers.cells import Bare, Cell
from bench.peers.loads import Clients

_PEERS = ("service-streamer", "mosec", "litserve", "bentoml", "ray-serve", "pytriton")
# Mean seconds by clients that are served by a device of 300 ms.
_POLICY_S = {
    Clients(1, thinks=True): 0.305,
    Clients(5, thinks=True): 0.385,
    Clients(20, thinks=True): 0.455,
    Clients(20): 0.320,
    Clients(64): 0.335,
}


@dataclass(frozen=True)
class Figures:
    """What aims are held against; `rows` are summed up, one for each measurement."""

    rows: Sequence[Cell]
    bare: Sequence[Bare]

    def cell(self, load: str, server: str, clients: Clients | None = None) -> Cell:
        """The one row.

        Raises:
            LookupError: it was not measured.
        """
        for row in self.rows:
            is_it = (row.load, row.server) == (load, server)
            if is_it and clients in (None, row.clients) and not row.problem:
                return row
        raise LookupError(f"{server} was not measured with {load}")

    def best_peer(self, load: str) -> float:
        """Requests/s of the best of the peers.

        Raises:
            LookupError: none was measured.
        """
        rates = [
            row.rate
            for row in self.rows
            if row.load == load and row.server in _PEERS and not row.problem
        ]
        if not rates:
            raise LookupError(f"no peer was measured with {load}")
        return max(rates)


@dataclass(frozen=True)
class Aim:
    """One aim: `value` measures it, and raises LookupError where it can't."""

    what: str
    limit: float
    value: Callable[[Figures], float]
    at_most: bool = False

    def told(self, figures: Figures) -> tuple[str, str, str, str]:
        """What, the limit, what was measured, and whether that reaches it."""
        sign = "at most" if self.at_most else "at least"
        limit = f"{sign} {self.limit:g}"
        try:
            value = self.value(figures)
        except LookupError:
            return self.what, limit, "not measured", ""
        reached = value <= self.limit if self.at_most else value >= self.limit
        return self.what, limit, f"{value:.3f}", "yes" if reached else "**no**"


def _to_best_peer(load: str, server: str = "gunicorn") -> Callable[[Figures], float]:
    return lambda all_: all_.cell(load, server).rate / all_.best_peer(load)


def _ratio(load: str, server: str, other: str) -> Callable[[Figures], float]:
    return lambda all_: all_.cell(load, server).rate / all_.cell(load, other).rate


def _one_connection(figures: Figures, server: str = "gunicorn") -> Cell:
    return figures.cell("growth", server, Clients(1))


def _median_to_before(figures: Figures) -> float:
    before = _one_connection(figures, "gunicorn-before")
    return _one_connection(figures).p50_s / before.p50_s


def _efficiency(load: str) -> Callable[[Figures], float]:
    def value(figures: Figures) -> float:
        shares = [
            each.served / each.bare
            for each in figures.bare
            if (each.load, each.server) == (load, "gunicorn")
        ]
        if not shares:
            raise LookupError(f"no bare engine was measured with {load}")
        return statistics.median(shares)

    return value


def kept_of_peak(rows: Sequence[Cell]) -> float:
    """Of the highest rate, what is left with that many clients or more; 1: all.

    Raises:
        LookupError: nothing was measured.
    """
    rates = [row.rate for row in sorted(rows, key=lambda row: row.clients.count)]
    if not rates or not max(rates):
        raise LookupError("nothing was measured")
    return min(rates[rates.index(max(rates)) :]) / max(rates)


def _growth(figures: Figures) -> list[Cell]:
    wanted = ("growth", "gunicorn")
    return [row for row in figures.rows if (row.load, row.server) == wanted]


def _failures(figures: Figures) -> float:
    rows = _growth(figures)
    if not rows or any(row.problem for row in rows):
        raise LookupError("growth was not measured")
    return float(sum(row.errors + row.not_2xx + row.wrong for row in rows))


def _mean_s(clients: Clients) -> Callable[[Figures], float]:
    return lambda figures: figures.cell("policy", "gunicorn", clients).mean_s


AIMS = (
    Aim("tiny: x mosec", 1.4, _ratio("tiny", "gunicorn", "mosec")),
    Aim("tiny: x before", 1.5, _ratio("tiny", "gunicorn", "gunicorn-before")),
    Aim(
        "tiny: shared model, x before", 1.25, _ratio("tiny", "shared", "shared-before")
    ),
    Aim("mnet: x best peer", 1.25, _to_best_peer("mnet")),
    Aim("mnet: OpenVINO, x best peer", 3.0, _to_best_peer("mnet", "openvino")),
    Aim("big: x best peer", 1.1, _to_best_peer("big")),
    Aim("mnet: rows/s, x the engine alone", 0.75, _efficiency("mnet")),
    Aim("big: rows/s, x the engine alone", 0.75, _efficiency("big")),
    *(
        Aim(f"policy: mean, {clients} (s)", limit_s, _mean_s(clients), at_most=True)
        for clients, limit_s in _POLICY_S.items()
    ),
    Aim("growth: 1 client, median, x before", 0.8, _median_to_before, at_most=True),
    Aim(
        "growth: 1 client, p99 (ms)",
        1.0,
        lambda all_: 1000 * _one_connection(all_).p99_s,
        at_most=True,
    ),
    Aim("growth: kept of the peak", 0.95, lambda all_: kept_of_peak(_growth(all_))),
    Aim("growth: requests that failed", 0.0, _failures, at_most=True),
)
