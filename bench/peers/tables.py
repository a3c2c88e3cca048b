"""The report in Markdown: what was served, how that compares, and Basket's aims."""

from collections.abc import Iterable, Sequence

from bench.peers.aims import AIMS, Figures, kept_of_peak
from bench.peers.cells import Campaign, Cell, summed_up
from bench.peers.loads import LOADS
from bench.peers.set_ups import SET_UPS

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
            if load.in_rounds:
                lines += _throughput(mine, campaign.rounds)
                lines += _bare(figures, load.name)
            else:
                lines += _by_clients(mine, speed=load.by_users)
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
        f"* {load}, {SET_UPS[server].title}: {problem}"
        for (load, server), problem in problems.items()
    ]
    lines += [
        f"* {row.load}, {SET_UPS[row.server].title}, {row.clients}: {_bad(row)}"
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
    heading = ("server", "setting", "requests/s", "mean (ms)", "p99 (ms)")
    more = ("rows in a batch", "failed", "wrong")
    ratios = tuple(f"x {SET_UPS[peer.server].title}" for peer in peers)
    body = [
        (
            SET_UPS[row.server].title,
            row.setting or _NONE,
            f"{row.rate:.0f}",
            f"{row.mean_s * 1000:.1f}",
            f"{row.p99_s * 1000:.1f}",
            _NONE if row.batch_rows is None else f"{row.batch_rows:.1f}",
            str(row.errors + row.not_2xx),
            f"{row.wrong} of {row.asked}",
            *(f"{row.rate / peer.rate:.2f}" if peer.rate else _NONE for peer in peers),
        )
        for row in rows
    ]
    clients = rows[0].clients.count
    often = "one round" if rounds == 1 else f"median of {rounds} rounds"
    said = f"{clients} connections, without think time; {often}."
    return [said, "", *table((*heading, *more, *ratios), body), ""]


def _bare(figures: Figures, load: str) -> list[str]:
    body = [
        (
            SET_UPS[each.server].title,
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


def _by_clients(rows: Sequence[Cell], *, speed: bool) -> list[str]:
    """A line for each server, a column for each number of clients."""
    clients = list(dict.fromkeys(row.clients for row in rows))
    body = []
    for server in dict.fromkeys(row.server for row in rows):
        mine = {row.clients: row for row in rows if row.server == server}
        told = [_cell(mine.get(each), speed=speed) for each in clients]
        kept = [] if speed else [f"{kept_of_peak([*mine.values()]):.2f}"]
        setting = next(iter(mine.values())).setting or _NONE
        body.append((SET_UPS[server].title, setting, *told, *kept))
    said = (
        "Seconds until the answer, mean and 95th percentile, on a simulated device."
        if speed
        else "Requests/s, and how many failed, on a simulated device."
    )
    heading = ["server", "setting", *map(str, clients), *([] if speed else ["kept"])]
    return [said, "", *table(heading, body), ""]


def _cell(row: Cell | None, *, speed: bool) -> str:
    if row is None:
        return _NONE
    if speed:
        return f"{row.mean_s:.3f} ({row.p95_s:.3f})"
    return f"{row.rate:.0f} ({row.errors + row.not_2xx + row.wrong})"


def _is_basket(row: Cell) -> bool:
    return SET_UPS[row.server].title.startswith("Basket")


def table(heading: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, *body)]
    return [lines[0], "|" + "---|" * len(heading), *lines[1:]]
