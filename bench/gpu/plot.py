"""The page's picture, drawn with matplotlib."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.gpu.run import Found
from bench.loadtest.plots import COLOURS, MARKERS, STYLE, log_seconds, users_axis

_SIZE_INCHES = (9.6, 4.2)


def draw(found: Found, title: str, file: Path) -> None:
    """Write a PNG: response time by users, and rows/s by rows in a batch."""
    with rc_context(STYLE):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        left, right = figure.subplots(1, 2)
        _by_users(left, found)
        _by_rows(right, found)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
        figure.savefig(file)


def _by_users(axes: Axes, found: Found) -> None:
    for place, server in enumerate(dict.fromkeys(c.server for c in found.cells)):
        mine = [cell for cell in found.cells if cell.server == server]
        users = [cell.clients.count for cell in mine]
        look: dict[str, Any] = {"color": COLOURS[3 * place], "marker": MARKERS[place]}
        axes.plot(users, [cell.mean_s for cell in mine], label=server, **look)
        p95 = [cell.p95_s for cell in mine]
        axes.plot(users, p95, ":", label=f"{server}, 95th percentile", **look)
    axes.set_title("Response time")
    users_axis(axes, sorted({cell.clients.count for cell in found.cells}))
    log_seconds(axes)
    axes.set_ylabel("seconds (log scale)")
    axes.legend()


def _by_rows(axes: Axes, found: Found) -> None:
    sizes, rates = zip(*found.rates, strict=True)
    axes.plot(sizes, rates, color=COLOURS[4], marker=MARKERS[0])
    axes.set_title("The engine alone")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("rows in a batch (log scale)")
    axes.margins(y=0.05)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("rows/s")
