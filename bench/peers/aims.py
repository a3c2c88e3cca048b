"""Basket's aims, compared with what a run measured; docs/performance.md lists them.

Most are ratios within one run, so that they hold on any machine.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.figures import Cell, Clients, Seen
from bench.peers.run import Bare
from bench.peers.servers import PEERS

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
    """The medians of a run, and its engines alone.

    Methods raise LookupError for what was not measured.
    """

    rows: Sequence[Cell]
    bare: Sequence[Bare] = ()

    def best(self, load: str, *servers: str, clients: Clients | None = None) -> Seen:
        """Return the figures with the highest rate."""
        found = [
            row.seen
            for row in self.rows
            if row.load == load and row.server in servers and not row.problem
            if clients in (None, row.clients)
        ]
        if not found:
            raise LookupError(f"none of {servers} was measured with {load}")
        return max(found, key=lambda seen: seen.rate)

    def ratio(self, load: str, server: str, *others: str) -> float:
        """Return a server's rate, divided by the best rate of the others."""
        return self.best(load, server).rate / self.best(load, *others).rate

    def efficiency(self, load: str) -> float:
        """Return the median share of the engine's rows per second that is served."""
        shares = [each.served / each.bare for each in self.bare if each.load == load]
        if not shares:
            raise LookupError(f"no engine alone was measured with {load}")
        return statistics.median(shares)

    def one_client(self, server: str = "gunicorn") -> Seen:
        """Return the figures of one connection."""
        return self.best("growth", server, clients=Clients(1))

    def growth(self) -> list[Seen]:
        """Return Basket's figures of the load growth, by connections."""
        rows = [row for row in self.rows if row.load == "growth"]
        rows = [row for row in rows if row.server == "gunicorn"]
        if not rows or any(row.problem for row in rows):
            raise LookupError("growth was not measured")
        return [row.seen for row in sorted(rows, key=lambda row: row.clients.count)]

    def kept_of_peak(self) -> float:
        """Return the lowest rate from the peak on, as a share of the peak."""
        rates = [seen.rate for seen in self.growth()]
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


def _rate(what: str, limit: float, load: str, server: str, *others: str) -> Aim:
    return Aim(what, limit, lambda run: run.ratio(load, server, *others))


def _mean(clients: Clients, limit_s: float) -> Aim:
    def mean_s(run: Figures) -> float:
        return run.best("policy", "gunicorn", clients=clients).mean_s

    return Aim(f"policy: mean, {clients} (s)", limit_s, mean_s, at_most=True)


def _median_to_before(run: Figures) -> float:
    return run.one_client().p50_s / run.one_client("gunicorn-before").p50_s


def _failed(run: Figures) -> float:
    return sum(seen.failed for seen in run.growth())


AIMS = (
    _rate("tiny: x mosec", 1.4, "tiny", "gunicorn", "mosec"),
    _rate("tiny: x before", 1.5, "tiny", "gunicorn", "gunicorn-before"),
    _rate("tiny: shared model, x before", 1.25, "tiny", "shared", "shared-before"),
    _rate("mnet: x best peer", 1.25, "mnet", "gunicorn", *PEERS),
    _rate("mnet: OpenVINO, x best peer", 3.0, "mnet", "openvino", *PEERS),
    _rate("big: x best peer", 1.1, "big", "gunicorn", *PEERS),
    Aim("mnet: rows/s, x the engine alone", 0.75, lambda run: run.efficiency("mnet")),
    Aim("big: rows/s, x the engine alone", 0.75, lambda run: run.efficiency("big")),
    *(_mean(clients, limit_s) for clients, limit_s in _POLICY_S.items()),
    Aim("growth: 1 client, median, x before", 0.8, _median_to_before, True),
    Aim(
        *("growth: 1 client, p99 (ms)", 1.0),
        lambda run: 1000 * run.one_client().p99_s,
        at_most=True,
    ),
    Aim("growth: kept of the peak", 0.95, Figures.kept_of_peak),
    Aim("growth: requests that failed", 0.0, _failed, at_most=True),
)
