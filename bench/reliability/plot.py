"""Goodput and refusals over the offered load, drawn with matplotlib."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bench.reliability.overload import Load

_GOOD, _REFUSED, _GREY = "#0072B2", "#D55E00", "#555555"


def draw(peak: Load, loads: Sequence[Load], file: Path) -> None:
    """Write a PNG; both axes are requests in a second."""
    figure = Figure(figsize=(5.8, 4.2), layout="constrained")
    axes = figure.subplots()
    offered = [load.offered for load in loads]
    axes.axhline(peak.goodput(), color=_GREY, linestyle=":", label="peak at capacity")
    good = [load.goodput() for load in loads]
    axes.plot(offered, good, "o-", color=_GOOD, label="answered within the deadline")
    refused = [load.refusals() for load in loads]
    axes.plot(offered, refused, "s--", color=_REFUSED, label="refused at once")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("requests offered in a second")
    axes.set_ylabel("requests in a second")
    axes.set_title("Goodput under overload", loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#DDDDDD")
    figure.legend(loc="outside lower left", ncols=1, frameon=False)
    figure.text(0.99, 0.993, "simulated device", ha="right", va="top", color=_GREY)
    figure.savefig(file, dpi=150)
