"""The report's picture, drawn with matplotlib."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.peers.cells import Cell
from bench.peers.loads import LOADS
from bench.peers.set_ups import TITLES

_OURS, _THEIRS = "#0072B2", "#999999"
# Okabe and Ito's colours, told apart by colour-blind readers too; markers for print.
_COLOURS = ("#0072B2", "#009E73", "#D55E00", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_WIDTH_INCHES = 7.0


def draw(rows: Sequence[Cell], file: Path) -> None:
    """Write a PNG with a panel for each load that was measured."""
    by_load = {
        name: [row for row in rows if row.load == name and row.rate] for name in LOADS
    }
    panels = [(name, found) for name, found in by_load.items() if found]
    if not panels:
        return
    heights = [_height(name, found) for name, found in panels]
    figure = Figure(figsize=(_WIDTH_INCHES, sum(heights)), layout="constrained")
    grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
    for axes, (name, found) in zip(grid[:, 0], panels, strict=True):
        load = LOADS[name]
        axes.set_title(f"{name}: {load.title}", loc="left", fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        if len(load.clients) == 1:
            _bars(axes, found)
        elif load.by_users:
            _lines(axes, found, "mean time to the answer (s)", lambda row: row.mean_s)
        else:
            _lines(axes, found, "requests/s", lambda row: row.rate)
    figure.savefig(file, dpi=150)


def _height(name: str, rows: Sequence[Cell]) -> float:
    """Inches."""
    return 0.9 + 0.26 * len(rows) if len(LOADS[name].clients) == 1 else 3.4


def _bars(axes: Axes, rows: Sequence[Cell]) -> None:
    titles = [TITLES[row.server] for row in rows]
    colours = [_OURS if title.startswith("Basket") else _THEIRS for title in titles]
    bars = axes.barh(titles, [row.rate for row in rows], color=colours)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#DDDDDD")
    axes.set_xlabel(f"requests/s, {rows[0].clients.count} connections")


def _lines(
    axes: Axes, rows: Sequence[Cell], label: str, value: Callable[[Cell], float]
) -> None:
    """A line for each server over the kinds of clients; those that think, apart."""
    kinds = list(dict.fromkeys(row.clients for row in rows))
    for place, server in enumerate(dict.fromkeys(row.server for row in rows)):
        mine = [row for row in rows if row.server == server]
        for thinks in dict.fromkeys(row.clients.thinks for row in mine):
            joined = [row for row in mine if row.clients.thinks == thinks]
            axes.plot(
                [kinds.index(row.clients) for row in joined],
                [value(row) for row in joined],
                color=_COLOURS[place % len(_COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=max(10 - 1.5 * place, 4),
                label=TITLES[server] if joined[0] is mine[0] else None,
            )
    axes.set_xticks(range(len(kinds)), [_words(kind) for kind in map(str, kinds)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.08)
    axes.set_ylim(0, 1.1 * max(map(value, rows)))
    axes.grid(axis="y", color="#DDDDDD")
    axes.set_ylabel(label)
    axes.set_xlabel("clients at once")
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _words(kind: str) -> str:
    return kind.replace("thinking ", "thinking\n")
