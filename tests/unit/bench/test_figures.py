"""Percentiles, and medians over rounds."""

import pytest

from bench.figures import Cell, Clients, Seen, best_setting, medians, percentile


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        pytest.param(range(100, 0, -1), 99, 99, id="99 of a hundred"),
        pytest.param([2.0, 1.0], 50, 1, id="half of two"),
        pytest.param([2.0, 1.0], 51, 2, id="more than half of two"),
        pytest.param([3.0], 99, 3, id="one"),
        pytest.param([3.0], 0, 3, id="the least"),
        pytest.param([], 99, 0, id="nothing"),
    ],
)
def test_percentile_is_the_nearest_rank(values, percent, wanted):
    """A percentile is the least value that so many percent do not exceed."""
    assert percentile(values, percent) == wanted


def cell(setting="", rate=100.0, round=1, **seen):
    seen = Seen(rate=rate, **seen)
    return Cell("tiny", "mosec", setting, Clients(32), round, seen)


def test_row_has_medians_of_the_best_setting():
    """A row is the median of the setting that was best in the first round."""
    cells = [
        cell("waits 1 ms", 100),
        cell("waits 10 ms", 120, errors=1),
        cell("waits 10 ms", 90, round=2, errors=2),
        cell("waits 10 ms", 100, round=3),
        cell("waits 1 ms", 500, round=3),
    ]
    assert best_setting(cells) == "waits 10 ms"
    (row,) = medians(cells)
    assert (row.setting, row.seen.rate, row.round) == ("waits 10 ms", 100, 3)
    assert row.seen.errors == 3


def test_cell_is_sound_if_all_answers_came_and_were_right():
    """A failed request, a problem, or no answer at all makes a cell unsound."""
    assert cell().sound
    assert not cell(rate=0.0).sound
    assert not cell(wrong=1).sound
    assert not cell(not_2xx=1).sound
    assert not Cell("tiny", "a", "", Clients(1), 1, Seen(1.0), "no internet").sound


def test_row_of_figures_is_in_milliseconds():
    """Times are in milliseconds, low rates have decimals, failures are counted."""
    seen = Seen(0.444, 0.3031, 0.3, 0.305, 4.0, errors=1, not_2xx=2, checked=9, wrong=3)
    figures = ("0.44", "303.10", "300.00", "305.00", "4000.00", "-", "3", "3 of 9")
    assert seen.row() == figures
    assert len(figures) == len(Seen.HEADING)
