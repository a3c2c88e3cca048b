"""The report's pictures, drawn with matplotlib."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from bench.loadtest.analysis import Figures, answers_of, common_load
from bench.loadtest.measurement import Campaign, Cell

# Okabe and Ito's colours, told apart by colour-blind readers too; markers for print.
COLOURS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#56B4E9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_GREY = "#555555"
_WIDTH_INCHES = 5.8
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
_Look = dict[str, Any]


@dataclass(frozen=True)
class _Chart:
    """A value by users; seconds get a logarithmic axis, all else one from zero.

    `compared`: with the article's and the best possible mean response time.
    """

    title: str
    unit: str
    value: Callable[[Figures], float | None]
    compared: bool = False


_CHARTS = {
    "mean.png": _Chart("Mean response time", "s", lambda row: row.mean_s, True),
    "p95.png": _Chart("95 % of answers come within", "s", lambda row: row.p95_s),
    "rate.png": _Chart("Answers per second", "requests/s", lambda row: row.rate),
    "batch.png": _Chart("Mean size of a batch", "rows", lambda row: row.mean_batch),
}


def draw(campaign: Campaign, rows: Sequence[Figures]) -> dict[str, bytes]:
    """A PNG by file name, for each picture that there is something to draw for."""
    answered = [row for row in rows if row.answers]
    with rc_context(STYLE):
        figures = {
            name: _by_users(chart, answered, _looks(rows))
            for name, chart in _CHARTS.items()
        } | {"over_time.png": _over_time(campaign)}
        return {
            name: _png(figure, simulated=campaign.simulated)
            for name, figure in figures.items()
            if figure
        }


def _by_users(
    chart: _Chart, rows: Sequence[Figures], looks: dict[str, _Look]
) -> Figure | None:
    """A line for each set-up over the number of users; None where all are empty."""
    known = [(row, made) for row in rows if (made := chart.value(row)) is not None]
    if not known:
        return None
    figure = Figure(figsize=(_WIDTH_INCHES, 4.6), layout="constrained")
    axes = figure.subplots()
    for setup, look in looks.items():
        points = sorted((row.users, made) for row, made in known if row.setup == setup)
        if points:
            axes.plot(*zip(*points, strict=True), label=setup, **look)
    if chart.compared:
        _compare(axes, rows, looks)
    axes.set_title(chart.title)
    users_axis(axes, sorted({row.users for row in rows}))
    if chart.unit == "s":
        log_seconds(axes)
        axes.set_ylabel("seconds (log scale)")
    else:
        axes.margins(y=0.05)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(chart.unit)
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def users_axis(axes: Axes, users: Sequence[int]) -> None:
    """A logarithmic axis whose ticks are the loads that were measured."""
    axes.set_xscale("log")
    axes.set_xlim(users[0] / 1.3, users[-1] * 1.3)
    axes.set_xticks(users, [str(number) for number in users])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("users (log scale)")


def _looks(rows: Sequence[Figures | Cell]) -> dict[str, _Look]:
    """Each set-up's look in every picture; smaller markers lie on larger ones."""
    return {
        setup: {
            "color": COLOURS[place % len(COLOURS)],
            "marker": MARKERS[place % len(MARKERS)],
            "markersize": max(10 - 1.3 * place, 4),
        }
        for place, setup in enumerate(dict.fromkeys(row.setup for row in rows))
    }


def _compare(axes: Axes, rows: Sequence[Figures], looks: dict[str, _Look]) -> None:
    """The article's figures as rings, the best possible mean as a dotted line."""
    ring: _Look = {"s": 180, "facecolors": "none", "linewidths": 1.4}
    rings = [(row, row.article_s) for row in rows if row.article_s is not None]
    for row, article_s in rings:
        colour = looks[row.setup]["color"]
        axes.scatter(row.users, article_s, edgecolors=colour, **ring)
    if rings:
        label = "ring: the article's figure"
        axes.scatter([], [], edgecolors=_GREY, label=label, **ring)
    best = sorted({(row.users, row.best_s) for row in rows if row.best_s is not None})
    if best:
        label = "best possible, one device"
        axes.plot(*zip(*best, strict=True), ":k", lw=2, label=label)


def _over_time(campaign: Campaign) -> Figure | None:
    """Each answer of the largest common load as a dot, a panel for each set-up."""
    users = common_load(campaign.cells)
    cells = [c for c in campaign.cells if c.users == users and answers_of(c)]
    if not cells:
        return None
    size = (_WIDTH_INCHES, 1.1 + 1.3 * len(cells))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(cells), sharex=True, sharey=True, squeeze=False)
    looks = _looks(campaign.cells)
    for axes, cell in zip(panels[:, 0], cells, strict=True):
        answered = answers_of(cell)
        times = [sample.at_s for sample in answered]
        taken = [sample.response_s for sample in answered]
        colour = looks[cell.setup]["color"]
        axes.plot(times, taken, ".", markersize=4, color=colour)
        axes.set_title(cell.setup, fontsize=10.5)
    log_seconds(panels[0, 0])
    panels[0, 0].set_xlim(left=0)
    panels[-1, 0].set_xlabel("seconds since the measurement began")
    figure.supylabel("response time in seconds (log scale)", fontsize=10.5)
    noun = "user" if users == 1 else "users"
    title = f"Each answer's response time, {users} {noun}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    return figure


def log_seconds(axes: Axes) -> None:
    """A logarithmic axis that begins and ends at ticks such as 0.2, 0.5 and 1."""
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


def _png(figure: Figure, *, simulated: bool) -> bytes:
    if simulated:
        figure.text(0.99, 0.993, "simulated device", ha="right", va="top", color=_GREY)
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()
