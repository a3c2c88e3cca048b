"""The report's plot: a panel for each load."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from bench import plots
from bench.figures import Cell
from bench.peers.loads import LOADS, Load
from bench.peers.servers import PEERS, TITLES

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
    with plots.saved(file, (_WIDTH_INCHES, sum(heights)), heights) as grid:
        for axes, (load, found) in zip(grid, panels, strict=True):
            axes.set_title(f"{load.name}: {load.title}")
            draw_panel = _bars if len(load.clients) == 1 else _lines
            draw_panel(axes, load, found)


def _bars(axes: Axes, load: Load, rows: Sequence[Cell]) -> None:
    titles = [TITLES[row.server] for row in rows]
    colors = [_OTHERS if row.server in PEERS else plots.COLORS[3] for row in rows]
    bars = axes.barh(titles, [row.seen.rate for row in rows], color=colors)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"requests/s, {load.clients[0]}")


def _lines(axes: Axes, load: Load, rows: Sequence[Cell]) -> None:
    """Draw a line for each server; of simulated users, only those who think."""
    series: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.clients.thinks == load.by_users:
            value = row.seen.mean_s if load.by_users else row.seen.rate
            points = series.setdefault(TITLES[row.server], [])
            points.append((row.clients.count, value))
    if series:
        plots.lines(axes, series, "thinking clients" if load.by_users else "clients")
    plots.from_zero(axes, "mean time (s)" if load.by_users else "requests/s")
