"""Draws a report: how far rows differ, and how long batches take."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from app.promotion.report import Report

_INCHES, _DOTS_PER_INCH = (8.6, 3.6), 150
# Two of Okabe and Ito's colors, which color-blind readers can tell apart.
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def draw(report: Report, file: Path) -> None:
    """Write a picture of a report; the file's ending is its format.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        OSError: the file can't be written.
    """
    # Imported here: the server does without it.
    figure = import_module("matplotlib.figure").Figure(_INCHES, layout="constrained")
    agreement, latency = figure.subplots(1, 2)
    _draw_agreement(agreement, report)
    _draw_latency(latency, report)
    for axes in (agreement, latency):
        axes.grid(color="#DDDDDD")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=_DOTS_PER_INCH)


def _draw_agreement(axes: Any, report: Report) -> None:
    """Draw the difference of each row, sorted, in the color of whether it agrees."""
    none = np.empty(0)
    apart = np.concatenate([none, *(each.differences() for each in report.compared)])
    agrees = np.concatenate(
        [none.astype(bool), *(each.agrees() for each in report.compared)]
    )
    finite = apart[np.isfinite(apart)]
    # Rows without numbers in common are drawn at the top.
    shown = np.where(np.isfinite(apart), apart, finite.max(initial=1.0))
    order = np.argsort(shown, kind="stable")
    places = np.arange(len(order))
    for is_same, color, label in ((True, _BLUE, "agree"), (False, _ORANGE, "disagree")):
        chosen = agrees[order] == is_same
        if chosen.any():
            axes.plot(places[chosen], shown[order][chosen], ".", c=color, label=label)
    axes.set_xlabel("rows, by difference")
    axes.set_ylabel("largest difference of a row")
    axes.set_ylim(bottom=0)
    if len(order):
        axes.legend(frameon=False)
    axes.set_title(
        f"{report.agreeing_rows} of {report.compared_rows} rows agree", loc="left"
    )


def _draw_latency(axes: Any, report: Report) -> None:
    """Draw each batch's time, and a line through the medians."""
    serving, new = report.versions
    for version, color, shift, kind in (
        (serving, _BLUE, -0.1, "serving_s"),
        (new, _ORANGE, 0.1, "candidate_s"),
    ):
        for place, each in enumerate(report.times):
            ms = [1000 * s for one in each.rounds for s in getattr(one, kind)]
            axes.plot([place + shift] * len(ms), ms, ".", c=color, alpha=0.4)
        medians = [1000 * getattr(each, kind) for each in report.times]
        places = [place + shift for place in range(len(medians))]
        axes.plot(places, medians, "_", c=color, ms=24, label=f"version {version}")
    sizes = [str(each.rows) for each in report.times]
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows of a batch")
    axes.set_ylabel("ms")
    axes.legend(frameon=False)
    axes.set_title("time of a batch; bars: medians", loc="left")
