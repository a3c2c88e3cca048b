"""A cell's figures, from invented samples, and costs."""

import pytest

from bench.figures import percentile
from bench.loadtest.analysis import (
    Cell,
    Sample,
    Wanted,
    best_loads,
    common_load,
    figures_of,
)

WANTED = Wanted(price_usd=3.06, p95_limit_s=1.0, target_rate=100.0)


def cell(times, *, users=1, rows=1, status=200, setup="naive", **more):
    """A cell whose answers took `times` seconds and fill 100 seconds."""
    made = Cell(setup, users, think_s=(1.0, 3.0), measured_s=100.0)
    made.samples += [
        Sample(at_s=float(at), response_s=time, status=status, batch_rows=rows)
        for at, time in enumerate(times)
    ]
    for name, value in more.items():
        setattr(made, name, value)
    return made


def figures(*args, simulated=True, **more):
    return figures_of(cell(*args, **more), simulated=simulated)


def test_mean_and_percentiles_of_a_hundred_answers():
    """Of 0.01 to 1.00 s, the 95th percentile is 0.95 s and the mean 0.505 s."""
    found = figures([place / 100 for place in range(100, 0, -1)])
    assert found.answers == 100
    assert found.rate == 1.0
    assert found.mean_s == pytest.approx(0.505)
    assert (found.p50_s, found.p95_s, found.p99_s) == (0.50, 0.95, 0.99)


def test_single_answer_is_each_of_its_percentiles():
    """One answer is the mean and all percentiles."""
    found = figures([0.3])
    assert found.mean_s == found.p50_s == found.p95_s == found.p99_s == 0.3


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


def test_failed_requests_are_errors_and_not_responses():
    """Only status 200 counts in rate, times and batches; all else, by its status."""
    mixed = cell([0.2, 0.4])
    mixed.samples += [Sample(3.0, 9.0, status, 5) for status in (503, 0, 503)]
    found = figures_of(mixed, simulated=True)
    assert (found.answers, found.rate, found.p99_s) == (2, 0.02, 0.4)
    assert found.mean_s == pytest.approx(0.3)
    assert found.mean_batch == 1
    assert found.errors == {0: 1, 503: 2}
    assert not found.sound


@pytest.mark.parametrize("measured_s", [0.0, 100.0])
def test_empty_cell_has_no_figures(measured_s):
    """A cell without samples has a rate of zero and no times."""
    found = figures([], measured_s=measured_s, problem="not ready within 60 s")
    assert found.rate == 0
    assert found.mean_s is found.p50_s is found.p95_s is found.p99_s is None
    assert found.mean_batch is found.little is None
    assert found.errors == {}
    assert found.problem == "not ready within 60 s"
    assert not found.sound


def test_row_is_sound_without_errors_and_problems():
    """A row is sound if it has answers, and neither errors nor a problem."""
    assert figures([0.3]).sound
    assert not figures([0.3], problem="the server stopped").sound
    assert not figures([]).sound


def test_mean_batch_is_over_batches():
    """Three answers from a batch of 3 and one from a batch of 1 make a mean of 2."""
    mixed = cell([0.3] * 3, rows=3)
    mixed.samples += cell([0.3]).samples
    assert figures_of(mixed, simulated=True).mean_batch == pytest.approx(2)


def test_no_mean_batch_without_the_header():
    """Answers that do not name their batch's size have no mean batch."""
    assert figures([0.3, 0.3], rows=0).mean_batch is None


def test_littles_law_holds_exactly():
    """40 answers of 0.5 s in 100 s, and 2 s to think: exactly one user."""
    little = figures([0.5] * 40).little
    assert little.deviation_percent == pytest.approx(0)
    assert not little.broken


@pytest.mark.parametrize(
    ("answers", "broken"), [(39, False), (41, False), (37, True), (43, True)]
)
def test_littles_law_broken_beyond_five_percent(answers, broken):
    """A deviation of 2.5 % is accepted, and one of 7.5 % is not, on either side."""
    little = figures([0.5] * answers).little
    assert little.deviation_percent == pytest.approx(answers / 0.4 - 100)
    assert little.broken == broken


def test_littles_law_counts_failed_requests():
    """A user whose request fails counts as well."""
    half = cell([0.5] * 20)
    half.samples += cell([0.5] * 20, status=503).samples
    assert figures_of(half, simulated=True).little.deviation_percent == pytest.approx(0)


def test_few_answers_may_deviate_by_chance():
    """A deviation of 10 % is chance for one user, and none for sixty."""
    one = figures([0.5] * 11, measured_s=25.0).little
    sixty = figures([0.5] * 11 * 60, users=60, measured_s=25.0).little
    assert one.deviation_percent == pytest.approx(sixty.deviation_percent)
    assert one.by_chance
    assert not sixty.by_chance


def test_littles_law_without_think_time():
    """Users who do not think are all in their requests."""
    little = figures([0.5] * 200, think_s=(0.0, 0.0)).little
    assert little.deviation_percent == pytest.approx(0)


@pytest.mark.parametrize(
    ("setup", "users", "article_s"),
    [
        ("naive", 1, 0.332),
        ("naive", 5, 0.431),
        ("naive", 20, 4.1),
        ("naive", 64, None),
        ("5 workers", 5, None),
        ("5 workers", 20, 2.05),
        ("batching, 500 ms", 1, 0.8),
        ("batching, 500 ms", 20, 0.68),
        ("batching, auto", 20, None),
        ("batching, 500 ms x 5 workers", 20, None),
    ],
)
def test_article_has_figures_for_its_own_loads(setup, users, article_s):
    """The article's mean is given for the set-ups and loads that it measured."""
    found = figures([0.3], setup=setup, users=users, simulated=False)
    assert found.article_s == article_s


@pytest.mark.parametrize(
    ("users", "best_s"), [(1, 0.3), (5, 0.376), (20, 0.444), (64, 0.453), (7, None)]
)
def test_best_mean_is_known_for_its_own_loads(users, best_s):
    """The best mean is given for the loads for which it was computed."""
    assert figures([0.3], users=users).best_s == best_s


def test_no_best_mean_for_other_loads():
    """Real devices and other think times have no best mean."""
    assert figures([0.3], simulated=False).best_s is None
    assert figures([0.3], think_s=(0.0, 0.0)).best_s is None


def test_common_load_is_the_largest_that_all_answered():
    """The common load is the largest under which every set-up has answers."""
    cells = [cell([0.3], setup=name, users=5) for name in ("one", "other")]
    cells += [cell([0.3], setup="one", users=20), cell([], setup="other", users=20)]
    assert common_load(cells) == 5
    assert common_load([*cells, cell([], setup="third", users=5)]) == 20
    assert common_load([cell([])]) is None


def row(setup, users, rate, response_s, status=200):
    """Return figures of `rate` answers per second, all of `response_s`."""
    made = Cell(setup, users, think_s=(1.0, 3.0), measured_s=10.0)
    made.samples += [Sample(1.0, response_s, 200, 1)] * int(rate * 10)
    made.samples.append(Sample(1.0, response_s, status, 1))
    return figures_of(made, simulated=False)


def test_cost_is_that_of_the_article():
    """2 requests/s an instance, 100 wanted, $3.06 an hour: 50 for $110,160 a month."""
    assert WANTED.bill(2.0) == (50, pytest.approx(110_160))


@pytest.mark.parametrize(
    ("rate", "instances"), [(100.0, 1), (1000.0, 1), (99.9, 2), (33.4, 3), (33.3, 4)]
)
def test_instances_are_rounded_up(rate, instances):
    """A part of an instance is paid as a whole one."""
    assert WANTED.bill(rate)[0] == instances


def test_best_load_is_the_highest_rate_within_the_limit():
    """Each set-up has its row with the highest rate and a p95 within the limit."""
    rows = [row("naive", 1, 1, 0.3), row("naive", 5, 2, 1.0), row("naive", 20, 3, 1.1)]
    rows += [row("auto", 5, 3, 0.3), row("slow", 1, 1, 1.01)]
    expected = {"naive": rows[1], "auto": rows[3], "slow": None}
    assert best_loads(rows, 1.0) == expected
    assert list(best_loads(rows, 1.0)) == list(expected)


def test_load_with_errors_is_no_best_load():
    """A row in which requests fail does not count, however fast the others are."""
    rows = [row("naive", 5, 9, 0.1, status=503)]
    assert best_loads(rows, 1.0) == {"naive": None}
