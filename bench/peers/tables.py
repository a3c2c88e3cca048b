"""The report in Markdown: figures, ratios of rates, and shares of the engine alone."""

from collections.abc import Iterator, Sequence

from bench.figures import Cell, Seen, medians
from bench.peers.loads import LOADS, Load
from bench.peers.run import Comparison
from bench.peers.servers import BASKET
from bench.report import table

_NONE = "-"


def markdown(campaign: Comparison) -> str:
    """Return the whole report."""
    rows = medians(campaign.cells)
    lines = ["# Basket beside its peers", "", campaign.header, ""]
    if campaign.stopped:
        lines += ["Stopped by hand: this is what was measured until then.", ""]
    bad = [row for row in rows if not row.sound]
    problems = dict.fromkeys(f"* {r.load}, {r.server}: {r.complaint()}" for r in bad)
    if problems:
        lines += ["Not measured, or not all answered right:", "", *problems, ""]
    for load in LOADS.values():
        mine = [row for row in rows if row.load == load.name and not row.problem]
        if mine:
            lines += [f"## {load.name}: {load.title}", ""]
            lines += [*_figures(load, mine, campaign.rounds), ""]
            lines += _bare(campaign, load)
    return "\n".join(lines)


def _figures(load: Load, rows: Sequence[Cell], rounds: int) -> list[str]:
    once = load.by_users or rounds == 1
    often = "One round" if once else f"Median of {rounds} rounds"
    servers = dict.fromkeys(row.server for row in rows)
    others = [] if load.by_users else [name for name in servers if name != BASKET]
    body = (
        (
            *(row.server, row.setting or _NONE, row.clients),
            *(*row.seen.row(), *_ratios(row, rows, others)),
        )
        for row in rows
    )
    heading = ("server", "setting", "clients", *Seen.HEADING)
    ratios = (f"x {name}" for name in others)
    return [f"{often}.", "", *table((*heading, *ratios), body)]


def _ratios(row: Cell, rows: Sequence[Cell], others: Sequence[str]) -> Iterator[str]:
    """Yield the row's rate as a multiple of each other server's, with equal clients."""
    same = [each for each in rows if each.clients == row.clients]
    rates = {each.server: each.seen.rate for each in same}
    for name in others:
        rate = rates.get(name)
        yield f"{row.seen.rate / rate:.2f}" if rate else _NONE


def _bare(campaign: Comparison, load: Load) -> list[str]:
    body = [
        (
            *(each.server, each.round, each.rows, f"{each.served:.0f}"),
            *(f"{each.bare:.0f}", f"{each.served / each.bare:.2f}"),
        )
        for each in campaign.bare
        if each.load == load.name
    ]
    heading = ("server", "round", "rows in a batch", "served rows/s")
    lines = table((*heading, "the engine alone, rows/s", "share"), body)
    return [*lines, ""] if body else []
