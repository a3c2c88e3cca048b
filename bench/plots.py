"""What all plots share: style, colors, axes, the file."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

# Okabe and Ito's colors, which color-blind readers can tell apart; markers for print.
COLORS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#56B4E9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
GREY = "#555555"
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


def lines(
    axes: Axes, series: Mapping[str, Sequence[tuple[int, float]]], label: str
) -> None:
    """Draw a line for each name over a logarithmic x axis; a legend names them."""
    for place, (name, points) in enumerate(series.items()):
        axes.plot(
            *zip(*sorted(points), strict=True),
            label=name,
            color=COLORS[place % len(COLORS)],
            marker=MARKERS[place % len(MARKERS)],
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
    """Make the y axis logarithmic, from tick to tick, such as 0.2, 0.5 and 1."""
    axes.set_yscale("log")
    axes.set_ylabel("seconds (log scale)")
    locator = LogLocator(subs=(1, 2, 5))
    bottom, top = axes.get_ylim()
    ticks = locator.tick_values(bottom / 10, top * 10)
    axes.set_ylim(
        max(tick for tick in ticks if tick <= bottom),
        min(tick for tick in ticks if tick >= top),
    )
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
