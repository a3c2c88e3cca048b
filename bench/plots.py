"""What all plots share: style, colors, axes."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

# Okabe and Ito's colors, which color-blind readers can tell apart; markers for print.
COLORS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#56B4E9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
GREY = "#555555"
STYLE: Any = {
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.ymargin": 0.01,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "savefig.dpi": 150,
    "text.parse_math": False,
}


def look(place: int) -> dict[str, Any]:
    """Return color and marker of line `place`; smaller markers lie on larger ones."""
    return {
        "color": COLORS[place % len(COLORS)],
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": max(10 - 1.3 * place, 4),
    }


def from_zero(axes: Axes, label: str) -> None:
    """Begin the y axis at 0."""
    axes.margins(y=0.05)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)


def log_axis(axes: Axes, values: Sequence[int], label: str) -> None:
    """Make the x axis logarithmic, with the measured values as ticks."""
    axes.set_xscale("log")
    axes.set_xlim(values[0] / 1.3, values[-1] * 1.3)
    axes.set_xticks(values, [str(number) for number in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{label} (log scale)")


def log_seconds(axes: Axes) -> None:
    """Make the y axis logarithmic, from tick to tick, such as 0.2, 0.5 and 1."""
    axes.set_yscale("log")
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
