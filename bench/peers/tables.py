"""The report in Markdown: what was served, how that compares, and Basket's aims."""

from collections.abc import Iterable, Sequence

from bench.peers.aims import AIMS, Figures
from bench.peers.cells import Campaign, Cell, summed_up
from bench.peers.loads import LOADS
from bench.peers.set_ups import TITLES

_NONE = "-"


def markdown(campaign: Campaign) -> str:
    """The whole report."""
    rows = summed_up(campaign.cells)
    figures = Figures(rows, campaign.bare)
    machine = ", ".join(f"{name}: {said}" for name, said in campaign.machine.items())
    lines = [
        "# Basket beside its peers",
        "",
        f"`{campaign.command}` on {campaign.date}; {machine}.",
        "",
    ]
    if campaign.stopped:
        lines += ["Stopped by hand: this is what was measured until then.", ""]
    lines += _complaints(rows)
    for load in LOADS.values():
        mine = [row for row in rows if row.load == load.name and not row.problem]
        if mine:
            lines += [f"## {load.name}: {load.title}", ""]
            if load.by_users:
                lines += _by_clients(mine)
            else:
                lines += _throughput(mine, campaign.rounds)
                lines += _bare(figures, load.name)
    lines += ["## Aims", ""]
    told = [aim.told(figures) for aim in AIMS]
    lines += table(("aim", "limit", "measured", "reached"), told)
    return "\n".join(lines)


def _complaints(rows: Iterable[Cell]) -> list[str]:
    """What went wrong, first."""
    problems = {
        (row.load, row.server): row.problem for row in rows if row.problem is not None
    }
    lines = [
        f"* {load}, {TITLES[server]}: {problem}"
        for (load, server), problem in problems.items()
    ]
    lines += [
        f"* {row.load}, {TITLES[row.server]}, {row.clients}: {_bad(row)}"
        for row in rows
        if not row.sound and not row.problem
    ]
    return ["Not measured, or not all answered right:", "", *lines, ""] if lines else []


def _bad(row: Cell) -> str:
    return (
        f"{row.errors} without an answer, {row.not_2xx} not 2xx, "
        f"{row.wrong} wrong of {row.asked} looked at"
    )


def _throughput(rows: Sequence[Cell], rounds: int) -> list[str]:
    peers = [row for row in rows if not _is_basket(row)]
    heading = ("server", "setting", "connections", "requests/s", "mean (ms)")
    more = ("median (ms)", "p99 (ms)", "rows in a batch", "failed", "wrong")
    ratios = tuple(f"x {TITLES[peer.server]}" for peer in peers)
    body = [
        (
            TITLES[row.server],
            row.setting or _NONE,
            str(row.clients.count),
            f"{row.rate:.0f}",
            *(f"{1000 * s:.2f}" for s in (row.mean_s, row.p50_s, row.p99_s)),
            _NONE if row.batch_rows is None else f"{row.batch_rows:.1f}",
            str(row.errors + row.not_2xx),
            f"{row.wrong} of {row.asked}",
            *(f"{row.rate / peer.rate:.2f}" if peer.rate else _NONE for peer in peers),
        )
        for row in rows
    ]
    often = "one round" if rounds == 1 else f"median of {rounds} rounds"
    said = f"Without think time; {often}."
    return [said, "", *table((*heading, *more, *ratios), body), ""]


def _bare(figures: Figures, load: str) -> list[str]:
    body = [
        (
            TITLES[each.server],
            str(each.round),
            str(each.rows),
            f"{each.served:.0f}",
            f"{each.bare:.0f}",
            f"{each.served / each.bare:.2f}",
        )
        for each in figures.bare
        if each.load == load
    ]
    heading = ("server", "round", "rows in a batch", "served rows/s")
    more = ("the engine alone, rows/s", "share")
    return [*table((*heading, *more), body), ""] if body else []


def _by_clients(rows: Sequence[Cell]) -> list[str]:
    """A line for each server, a column for each number of clients."""
    clients = list(dict.fromkeys(row.clients for row in rows))
    body = []
    for server in dict.fromkeys(row.server for row in rows):
        mine = {row.clients: row for row in rows if row.server == server}
        told = [_cell(mine.get(each)) for each in clients]
        setting = next(iter(mine.values())).setting or _NONE
        body.append((TITLES[server], setting, *told))
    said = "Seconds until the answer, mean and 95th percentile, on a simulated device."
    heading = ["server", "setting", *map(str, clients)]
    return [said, "", *table(heading, body), ""]


def _cell(row: Cell | None) -> str:
    return _NONE if row is None else f"{row.mean_s:.3f} ({row.p95_s:.3f})"


def _is_basket(row: Cell) -> bool:
    return TITLES[row.server].startswith("Basket")


def table(heading: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, *body)]
    return [lines[0], "|" + "---|" * len(heading), *lines[1:]]
