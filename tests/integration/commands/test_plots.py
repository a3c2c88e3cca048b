"""The pictures of commands: importing matplotlib takes longer than a unit test."""

import re
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from app.promotion.comparison import compare
from app.promotion.report_parts import plot
from app.settings.promotion_config import PromotionConfig
from tests.support.plan import short_plans
from tests.support.promotion import Clock, random_scores, rows_of, side

pytestmark = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="not installed: matplotlib"
)
ROWS = random_scores()
PLAN = ("plan", "--base-ms", "300", "--per-row-ms", "0", "--p95-ms", "650")


@pytest.mark.parametrize(
    ("load", "unit"),
    [(("--users", "50", "--think", "1-3"), "users"), (("--rate", "20"), "requests/s")],
)
def test_plan_draws_the_printed_times_by_load(tmp_path, monkeypatch, load, unit):
    """--plot writes a PNG: p95 of one server, the limit as a dashed line, the units."""
    drawn = []
    figure = import_module("matplotlib.figure").Figure
    save = figure.savefig

    def recorded(self, *args, **options):
        drawn.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(figure, "savefig", recorded)
    file = tmp_path / "p95.png"
    picture = ("--plot", str(file))
    command = short_plans(monkeypatch, tmp_path, 200)
    status, output = command(*PLAN, *load, *picture, max_batch_size=4)
    assert status == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    curve, limit = axes.lines
    bars = re.findall(r"^ +([\d.,]+) \S+ +p95 +([\d.]+) ms", output, re.M)
    printed = [[float(n.replace(",", "")) for n in each] for each in bars]
    assert len(printed) > 5
    assert curve.get_xydata() == pytest.approx(np.array(printed), rel=0.01)
    assert set(limit.get_ydata()) == {650}
    assert limit.get_linestyle() == "--"
    assert (axes.get_xlabel(), axes.get_ylabel()) == (unit, "ms")
    assert axes.get_ylim() == (0, 1300)


def shuffled(x):
    return np.roll(x, 1, axis=1)


def raising(x):
    if np.isin(x[:, 0], ROWS[:4, 0]).any():
        raise ValueError("no such row")
    return x


@pytest.mark.parametrize("compute", [shuffled, raising])
def test_comparison_is_drawn_of_a_version_that_never_agrees(tmp_path, compute):
    """A version that answers no row as the other, or fails on a batch, is drawn too."""
    clock = Clock()
    sides = side(1, lambda x: x, clock), side(2, compute, clock)
    report = compare(*sides, rows_of(ROWS), PromotionConfig())
    plot.draw(report, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
