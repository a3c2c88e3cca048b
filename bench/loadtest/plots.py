"""The report's plots: a line for each set-up by users."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import cycler, rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from bench.figures import Cell, Seen
from bench.loadtest.run import LoadTest

# Okabe and Ito's colors, which color-blind readers can tell apart; markers for print.
_COLORS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_SIZE_INCHES = (5.8, 4.6)
_STYLE: Any = {
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=_COLORS, marker=_MARKERS),
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "text.parse_math": False,
}
# Title, value, and unit of the axis, empty for seconds.
_CHARTS: dict[str, tuple[str, Callable[[Seen], float], str]] = {
    "mean.png": ("Mean response time", lambda seen: seen.mean_s, ""),
    "p95.png": ("95 % of answers come within", lambda seen: seen.p95_s, ""),
    "rate.png": ("Answers per second", lambda seen: seen.rate, "requests/s"),
    "batch.png": ("Mean size of a batch", lambda seen: seen.batch_rows or 1, "rows"),
}


def draw(campaign: LoadTest, folder: Path) -> list[str]:
    """Write a PNG for each of _CHARTS into `folder`; return their names."""
    answered = [cell for cell in campaign.cells if cell.seen.rate]
    if not answered:
        return []
    device = ", simulated device" if campaign.simulated else ""
    with rc_context(_STYLE):
        for name, (title, value, unit) in _CHARTS.items():
            figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
            axes = figure.subplots()
            _lines(axes, answered, value)
            axes.set_title(f"{title}{device}")
            axes.set_ylabel(unit or "seconds (log scale)")
            if unit:
                axes.set_ylim(bottom=0)
            else:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
            figure.savefig(folder / name)
    return list(_CHARTS)


def _lines(axes: Any, cells: list[Cell], value: Callable[[Seen], float]) -> None:
    """Draw a line for each set-up over a logarithmic x axis; a legend names them."""
    for place, name in enumerate(dict.fromkeys(cell.server for cell in cells)):
        mine = [cell for cell in cells if cell.server == name]
        points = sorted((cell.clients.count, value(cell.seen)) for cell in mine)
        # Smaller markers lie on larger ones.
        size = max(10 - 1.3 * place, 4)
        axes.plot(*zip(*points, strict=True), label=name, markersize=size)
    ticks = sorted({cell.clients.count for cell in cells})
    axes.set_xscale("log")
    axes.set_xlim(ticks[0] / 1.3, ticks[-1] * 1.3)
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("users (log scale)")
    axes.legend()
