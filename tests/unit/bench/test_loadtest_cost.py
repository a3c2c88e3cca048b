"""What a target rate costs a month."""

import pytest

from bench.loadtest.analysis import figures_of
from bench.loadtest.cost import Wanted, bill, offers
from bench.loadtest.measurement import Cell, Sample

WANTED = Wanted(price_usd=3.06, p95_limit_s=1.0, target_rate=100.0)


def row(setup, users, rate, response_s, status=200):
    """A set-up's figures at `rate` answers per second, all of `response_s`."""
    cell = Cell(setup, users, think_s=(1.0, 3.0), measured_s=10.0)
    cell.samples += [Sample(1.0, response_s, 200, 1)] * int(rate * 10)
    cell.samples.append(Sample(1.0, response_s, status, 1))
    return figures_of(cell, simulated=False)


def test_the_articles_sum():
    """2 requests/s an instance, 100 wanted, $3.06 an hour: 50 for $110,160 a month."""
    article = bill(2.0, WANTED)
    assert article.instances == 50
    assert article.usd_a_month == pytest.approx(110_160)


@pytest.mark.parametrize(
    ("rate", "instances"), [(100.0, 1), (1000.0, 1), (99.9, 2), (33.4, 3), (33.3, 4)]
)
def test_instances_are_whole(rate, instances):
    """A part of an instance is paid as a whole one."""
    assert bill(rate, WANTED).instances == instances


def test_the_best_load_within_the_limit_counts():
    """The rate of an instance is the highest with a p95 within the limit."""
    rows = [row("naive", 1, 1, 0.3), row("naive", 5, 2, 1.0), row("naive", 20, 3, 1.1)]
    (offer,) = offers(rows, WANTED)
    assert offer.load is rows[1]
    assert offer.bill == bill(rows[1].rate, WANTED)


def test_each_setup_has_its_offer():
    """The set-ups come in the order of the rows, once each."""
    rows = [row("b", 1, 1, 0.3), row("a", 1, 2, 0.3), row("b", 5, 3, 0.3)]
    assert [(each.setup, each.load) for each in offers(rows, WANTED)] == [
        ("b", rows[2]),
        ("a", rows[1]),
    ]


def test_a_load_with_errors_does_not_count():
    """A load at which requests fail is no offer, though the others are fast."""
    (offer,) = offers([row("naive", 5, 9, 0.1, status=503)], WANTED)
    assert offer.load is None
    assert offer.bill is None


def test_no_load_within_the_limit():
    """A set-up that never keeps the limit has no offer."""
    (offer,) = offers([row("naive", 1, 1, 1.01)], WANTED)
    assert offer.load is None
