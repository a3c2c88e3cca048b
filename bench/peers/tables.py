"""The report in Markdown: figures, ratios to the peers, and Basket's aims."""

from collections.abc import Iterable, Sequence

from bench.figures import Cell, medians
from bench.peers.aims import AIMS, Figures
from bench.peers.loads import LOADS
from bench.peers.run import Bare, Campaign
from bench.peers.servers import TITLES
from bench.report import table

_NONE = "-"


def markdown(campaign: Campaign) -> str:
    """Return the whole report."""
    rows = medians(campaign.cells)
    lines = ["# Basket beside its peers", "", campaign.header, ""]
    if campaign.stopped:
        lines += ["Stopped by hand: this is what was measured until then.", ""]
    lines += _problems(rows)
    for load in LOADS.values():
        mine = [row for row in rows if row.load == load.name and not row.problem]
        if mine:
            lines += [f"## {load.name}: {load.title}", ""]
            if load.by_users:
                lines += _by_clients(mine)
            else:
                lines += _throughput(mine, campaign.rounds)
                lines += _bare(each for each in campaign.bare if each.load == load.name)
    lines += ["## Aims", ""]
    verdicts = [aim.verdict(Figures(rows, campaign.bare)) for aim in AIMS]
    lines += table(("aim", "limit", "measured", "reached"), verdicts)
    return "\n".join(lines)


def _problems(rows: Iterable[Cell]) -> list[str]:
    found = dict.fromkeys(
        f"* {row.load}, {TITLES[row.server]}: {row.problem or _failures(row)}"
        for row in rows
        if not row.sound
    )
    heading = "Not measured, or not all answered right:"
    return [heading, "", *found, ""] if found else []


def _failures(row: Cell) -> str:
    seen = row.seen
    return (
        f"{row.clients}: {seen.errors} without an answer, {seen.not_2xx} not 2xx, "
        f"{seen.wrong} wrong of {seen.checked} checked"
    )


def _throughput(rows: Sequence[Cell], rounds: int) -> list[str]:
    peers = [row for row in rows if not is_basket(row)]
    heading = (
        *("server", "setting", "connections", "requests/s", "mean (ms)", "median (ms)"),
        *("p99 (ms)", "rows in a batch", "failed", "wrong"),
        *(f"x {TITLES[peer.server]}" for peer in peers),
    )
    often = "one round" if rounds == 1 else f"median of {rounds} rounds"
    body = (_throughput_row(row, peers) for row in rows)
    return [f"Without think time; {often}.", "", *table(heading, body), ""]


def _throughput_row(row: Cell, peers: Sequence[Cell]) -> Iterable[str]:
    seen = row.seen
    batch = _NONE if seen.batch_rows is None else f"{seen.batch_rows:.1f}"
    ratios = (
        f"{seen.rate / peer.seen.rate:.2f}" if peer.seen.rate else _NONE
        for peer in peers
    )
    times = (f"{1000 * each:.2f}" for each in (seen.mean_s, seen.p50_s, seen.p99_s))
    return (
        *(TITLES[row.server], row.setting or _NONE, str(row.clients.count)),
        *(f"{seen.rate:.0f}", *times, batch, str(seen.errors + seen.not_2xx)),
        *(f"{seen.wrong} of {seen.checked}", *ratios),
    )


def _bare(found: Iterable[Bare]) -> list[str]:
    heading = ("server", "round", "rows in a batch", "served rows/s")
    body = [
        (
            *(TITLES[each.server], each.round, each.rows, f"{each.served:.0f}"),
            *(f"{each.bare:.0f}", f"{each.served / each.bare:.2f}"),
        )
        for each in found
    ]
    lines = table((*heading, "the engine alone, rows/s", "share"), body)
    return [*lines, ""] if body else []


def _by_clients(rows: Sequence[Cell]) -> list[str]:
    """Return a line for each server with a column for each number of clients."""
    clients = list(dict.fromkeys(row.clients for row in rows))
    body = []
    for server in dict.fromkeys(row.server for row in rows):
        mine = {row.clients: row for row in rows if row.server == server}
        setting = next(iter(mine.values())).setting or _NONE
        body.append((TITLES[server], setting, *(_times(mine.get(n)) for n in clients)))
    text = "Response times in seconds, mean and 95th percentile, on a simulated device."
    return [text, "", *table(("server", "setting", *map(str, clients)), body), ""]


def _times(row: Cell | None) -> str:
    return _NONE if row is None else f"{row.seen.mean_s:.3f} ({row.seen.p95_s:.3f})"


def is_basket(row: Cell) -> bool:
    """Return whether a row is one of Basket's."""
    return TITLES[row.server].startswith("Basket")
