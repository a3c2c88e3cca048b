"""The report's plot: a panel for each load."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.figures import Cell
from bench.peers.loads import LOADS
from bench.peers.servers import TITLES
from bench.peers.tables import is_basket
from bench.plots import COLORS, STYLE, from_zero, look

_OTHERS = "#999999"
_WIDTH_INCHES = 7.0


def draw(rows: Sequence[Cell], file: Path) -> None:
    """Write a PNG with a panel for each load that was measured."""
    by_load = {
        name: [row for row in rows if row.load == name and row.seen.rate]
        for name in LOADS
    }
    panels = [(LOADS[name], found) for name, found in by_load.items() if found]
    if not panels:
        return
    heights = [
        0.9 + 0.26 * len(found) if len(load.clients) == 1 else 3.4
        for load, found in panels
    ]
    with rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
        grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for axes, (load, found) in zip(grid[:, 0], panels, strict=True):
            axes.set_title(f"{load.name}: {load.title}")
            if len(load.clients) == 1:
                _bars(axes, found)
            elif load.by_users:
                _lines(axes, found, "mean time (s)", lambda row: row.seen.mean_s)
            else:
                _lines(axes, found, "requests/s", lambda row: row.seen.rate)
        figure.savefig(file)


def _bars(axes: Axes, rows: Sequence[Cell]) -> None:
    titles = [TITLES[row.server] for row in rows]
    colors = [COLORS[3] if is_basket(row) else _OTHERS for row in rows]
    bars = axes.barh(titles, [row.seen.rate for row in rows], color=colors)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"requests/s, {rows[0].clients.count} connections")


def _lines(
    axes: Axes, rows: Sequence[Cell], label: str, value: Callable[[Cell], float]
) -> None:
    """Draw a line for each server; thinking clients have a line of their own."""
    kinds = list(dict.fromkeys(row.clients for row in rows))
    for place, server in enumerate(dict.fromkeys(row.server for row in rows)):
        mine = [row for row in rows if row.server == server]
        for thinks in dict.fromkeys(row.clients.thinks for row in mine):
            joined = [row for row in mine if row.clients.thinks == thinks]
            axes.plot(
                [kinds.index(row.clients) for row in joined],
                [value(row) for row in joined],
                label=TITLES[server] if joined[0] is mine[0] else None,
                **look(place),
            )
    words = [str(kind).replace("thinking ", "thinking\n") for kind in kinds]
    axes.set_xticks(range(len(kinds)), words)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08)
    from_zero(axes, label)
    axes.legend(loc="lower left")
