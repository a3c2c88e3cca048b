"""The report's plot: a panel with bars for each load."""

from collections.abc import Sequence
from pathlib import Path

from bench import plots
from bench.figures import Cell
from bench.peers.loads import LOADS

_WIDTH_INCHES = 7.0


def draw(rows: Sequence[Cell], file: Path) -> None:
    """Write a PNG with a panel for each load that was measured."""
    measured = [row for row in rows if row.seen.rate]
    by_load = [
        (load, [row for row in measured if row.load == load.name])
        for load in LOADS.values()
    ]
    panels = [(load, found) for load, found in by_load if found]
    if not panels:
        return
    heights = [0.9 + 0.26 * len(found) for _, found in panels]
    with plots.saved(file, (_WIDTH_INCHES, sum(heights)), heights) as grid:
        for axes, (load, found) in zip(grid, panels, strict=True):
            titles = [f"{row.server}, {row.clients}" for row in found]
            mine = [row.server.startswith("Basket") for row in found]
            seen = [row.seen for row in found]
            values = [each.mean_s if load.by_users else each.rate for each in seen]
            colors = [plots.COLORS[3] if each else plots.GREY for each in mine]
            bars = axes.barh(titles, values, color=colors)
            axes.bar_label(bars, fmt="%.3g" if load.by_users else "%.0f", padding=3)
            axes.margins(x=0.12)
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.set_xlabel("mean time (s)" if load.by_users else "requests/s")
            axes.set_title(f"{load.name}: {load.title}")
