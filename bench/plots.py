"""What all plots share: style, colors, axes, the file."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from bench.figures import Cell, Seen

# Okabe and Ito's colors, which color-blind readers can tell apart; markers for print.
COLORS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
GREY = "#777777"
_STYLE: Any = {
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "text.parse_math": False,
}


@contextlib.contextmanager
def saved(
    file: Path, size: tuple[float, float], heights: Sequence[float] = (1,), columns=1
) -> Iterator[list[Axes]]:
    """Yield the panels of a new figure, row by row, and save it as a PNG.

    `size` is in inches; `heights` are those of the rows, relative to each other.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(
            len(heights), columns, squeeze=False, height_ratios=heights
        )
        yield list(grid.flat)
        figure.savefig(file)


def by_users(axes: Axes, cells: Sequence[Cell], value: Callable[[Seen], float]) -> None:
    """Draw a value of each cell over its users, a line for each server."""
    series: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        points = series.setdefault(cell.server, [])
        points.append((cell.clients.count, value(cell.seen)))
    lines(axes, series, "users")


def lines(
    axes: Axes, series: Mapping[str, Sequence[tuple[int, float]]], label: str
) -> None:
    """Draw a line for each name over a logarithmic x axis; a legend names them."""
    for place, (name, points) in enumerate(series.items()):
        axes.plot(
            *zip(*sorted(points), strict=True),
            label=name,
            color=COLORS[place % len(COLORS)],
            marker=_MARKERS[place % len(_MARKERS)],
            # Smaller markers lie on larger ones.
            markersize=max(10 - 1.3 * place, 4),
        )
    ticks = sorted({x for points in series.values() for x, _ in points})
    axes.set_xscale("log")
    axes.set_xlim(ticks[0] / 1.3, ticks[-1] * 1.3)
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{label} (log scale)")
    if len(series) > 1:
        axes.legend()


def from_zero(axes: Axes, label: str) -> None:
    """Begin the y axis at 0."""
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)


def log_seconds(axes: Axes) -> None:
    """Make the y axis logarithmic, with ticks such as 0.2, 0.5 and 1."""
    axes.set_yscale("log")
    axes.set_ylabel("seconds (log scale)")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
