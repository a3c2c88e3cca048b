"""Basket's aims, compared with what a run measured; docs/performance.md lists them.

Most are ratios within one run, so that they hold on any machine.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.figures import Cell, Clients
from bench.peers.others import PEERS
from bench.peers.run import Bare

# Mean seconds by clients on a device of 300 ms.
_POLICY_S = {
    Clients(1, thinks=True): 0.305,
    Clients(5, thinks=True): 0.385,
    Clients(20, thinks=True): 0.455,
    Clients(20): 0.320,
    Clients(64): 0.335,
}


@dataclass(frozen=True)
class Figures:
    """The medians of a run, and its engines alone."""

    rows: Sequence[Cell]
    bare: Sequence[Bare] = ()

    def find(self, load: str, *servers: str, clients: Clients | None = None) -> Cell:
        """Return the row with the highest rate.

        Raises:
            LookupError: none was measured.
        """
        found = [
            row
            for row in self.rows
            if row.load == load
            and row.server in servers
            and clients in (None, row.clients)
            and not row.problem
        ]
        if not found:
            raise LookupError(f"none of {servers} was measured with {load}")
        return max(found, key=lambda row: row.seen.rate)

    def ratio(self, load: str, server: str, *others: str) -> float:
        """Return a server's rate, divided by the best rate of the others."""
        rate = self.find(load, server).seen.rate
        return rate / self.find(load, *others).seen.rate

    def median_to_before(self) -> float:
        """Return the ratio of the medians of one connection."""
        servers = ("gunicorn", "gunicorn-before")
        now, before = (self.find("growth", s, clients=Clients(1)) for s in servers)
        return now.seen.p50_s / before.seen.p50_s

    def efficiency(self, load: str) -> float:
        """Return the median share of the engine's rows per second that is served."""
        shares = [each.served / each.bare for each in self.bare if each.load == load]
        if not shares:
            raise LookupError(f"no engine alone was measured with {load}")
        return statistics.median(shares)

    def growth(self) -> list[Cell]:
        """Return Basket's rows of the load growth, by connections."""
        rows = [r for r in self.rows if (r.load, r.server) == ("growth", "gunicorn")]
        if not rows or any(row.problem for row in rows):
            raise LookupError("growth was not measured")
        return sorted(rows, key=lambda row: row.clients.count)

    def kept_of_peak(self) -> float:
        """Return the lowest rate from the peak on, as a share of the peak."""
        rates = [row.seen.rate for row in self.growth()]
        peak = max(rates)
        if not peak:
            raise LookupError("no request was answered")
        return min(rates[rates.index(peak) :]) / peak


@dataclass(frozen=True)
class Aim:
    """One aim: `value` measures it, and raises LookupError if it was not measured."""

    what: str
    limit: float
    value: Callable[[Figures], float]
    at_most: bool = False

    def verdict(self, figures: Figures) -> tuple[str, str, str, str]:
        """Return the aim, its limit, what was measured, and whether it is reached."""
        limit = f"{'at most' if self.at_most else 'at least'} {self.limit:g}"
        try:
            value = self.value(figures)
        except LookupError:
            return self.what, limit, "not measured", ""
        reached = value <= self.limit if self.at_most else value >= self.limit
        return self.what, limit, f"{value:.3f}", "yes" if reached else "**no**"


def _mean_s(clients: Clients) -> Callable[[Figures], float]:
    return lambda run: run.find("policy", "gunicorn", clients=clients).seen.mean_s


AIMS = (
    Aim("tiny: x mosec", 1.4, lambda run: run.ratio("tiny", "gunicorn", "mosec")),
    Aim(
        *("tiny: x before", 1.5),
        lambda run: run.ratio("tiny", "gunicorn", "gunicorn-before"),
    ),
    Aim(
        *("tiny: shared model, x before", 1.25),
        lambda run: run.ratio("tiny", "shared", "shared-before"),
    ),
    Aim("mnet: x best peer", 1.25, lambda run: run.ratio("mnet", "gunicorn", *PEERS)),
    Aim(
        *("mnet: OpenVINO, x best peer", 3.0),
        lambda run: run.ratio("mnet", "openvino", *PEERS),
    ),
    Aim("big: x best peer", 1.1, lambda run: run.ratio("big", "gunicorn", *PEERS)),
    Aim("mnet: rows/s, x the engine alone", 0.75, lambda run: run.efficiency("mnet")),
    Aim("big: rows/s, x the engine alone", 0.75, lambda run: run.efficiency("big")),
    *(
        Aim(f"policy: mean, {clients} (s)", limit_s, _mean_s(clients), at_most=True)
        for clients, limit_s in _POLICY_S.items()
    ),
    Aim("growth: 1 client, median, x before", 0.8, Figures.median_to_before, True),
    Aim(
        *("growth: 1 client, p99 (ms)", 1.0),
        lambda run: 1000 * run.growth()[0].seen.p99_s,
        at_most=True,
    ),
    Aim("growth: kept of the peak", 0.95, Figures.kept_of_peak),
    Aim(
        *("growth: requests that failed", 0.0),
        lambda run: float(sum(row.seen.failed for row in run.growth())),
        at_most=True,
    ),
)
