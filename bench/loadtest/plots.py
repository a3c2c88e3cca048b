"""The report's plots."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.loadtest.analysis import Campaign, Figures, common_load
from bench.plots import GREY, STYLE, from_zero, log_axis, log_seconds, look

_WIDTH_INCHES = 5.8
_Looks = dict[str, dict[str, Any]]


class _Chart(NamedTuple):
    """A value by users; seconds get a logarithmic axis, other units one from zero.

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
    """Return a PNG by file name, without those that would be empty."""
    names = dict.fromkeys(row.setup for row in rows)
    looks = {setup: look(place) for place, setup in enumerate(names)}
    answered = [row for row in rows if row.answers]
    with rc_context(STYLE):
        figures = {
            name: _by_users(chart, answered, looks) for name, chart in _CHARTS.items()
        } | {"over_time.png": _over_time(campaign, looks)}
        return {
            name: _png(figure, campaign.simulated)
            for name, figure in figures.items()
            if figure
        }


def _by_users(chart: _Chart, rows: Sequence[Figures], looks: _Looks) -> Figure | None:
    """Draw a line for each set-up; return None if there is no value."""
    known = [(row, value) for row in rows if (value := chart.value(row)) is not None]
    if not known:
        return None
    figure = Figure(figsize=(_WIDTH_INCHES, 4.6), layout="constrained")
    axes = figure.subplots()
    for setup, style in looks.items():
        points = sorted(
            (row.users, value) for row, value in known if row.setup == setup
        )
        if points:
            axes.plot(*zip(*points, strict=True), label=setup, **style)
    if chart.compared:
        _compare(axes, rows, looks)
    axes.set_title(chart.title)
    log_axis(axes, sorted({row.users for row in rows}), "users")
    if chart.unit == "s":
        log_seconds(axes)
        axes.set_ylabel("seconds (log scale)")
    else:
        from_zero(axes, chart.unit)
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def _compare(axes: Axes, rows: Sequence[Figures], looks: _Looks) -> None:
    """Draw the article's figures as rings, the best possible mean as a dotted line."""
    ring: dict[str, Any] = {"s": 180, "facecolors": "none", "linewidths": 1.4}
    rings = [(row, row.article_s) for row in rows if row.article_s is not None]
    for row, article_s in rings:
        color = looks[row.setup]["color"]
        axes.scatter(row.users, article_s, edgecolors=color, **ring)
    if rings:
        label = "ring: the article's figure"
        axes.scatter([], [], edgecolors=GREY, label=label, **ring)
    best = sorted({(row.users, row.best_s) for row in rows if row.best_s is not None})
    if best:
        label = "best possible, one device"
        axes.plot(*zip(*best, strict=True), ":k", lw=2, label=label)


def _over_time(campaign: Campaign, looks: _Looks) -> Figure | None:
    """Draw each answer of the largest common load, with a panel for each set-up."""
    users = common_load(campaign.cells)
    cells = [cell for cell in campaign.cells if cell.users == users and cell.answers]
    if not cells:
        return None
    size = (_WIDTH_INCHES, 1.1 + 1.3 * len(cells))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(cells), sharex=True, sharey=True, squeeze=False)
    for axes, cell in zip(panels[:, 0], cells, strict=True):
        times = [sample.at_s for sample in cell.answers]
        taken = [sample.response_s for sample in cell.answers]
        color = looks[cell.setup]["color"]
        axes.plot(times, taken, ".", markersize=4, color=color)
        axes.set_title(cell.setup, fontsize=10.5)
    log_seconds(panels[0, 0])
    panels[0, 0].set_xlim(left=0)
    panels[-1, 0].set_xlabel("seconds since the measurement began")
    figure.supylabel("response time in seconds (log scale)", fontsize=10.5)
    noun = "user" if users == 1 else "users"
    title = f"Each answer's response time, {users} {noun}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    return figure


def _png(figure: Figure, simulated: bool) -> bytes:
    if simulated:
        figure.text(0.99, 0.993, "simulated device", ha="right", va="top", color=GREY)
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()
