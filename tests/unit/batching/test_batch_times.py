"""How long batches take, as learnt from those that ran."""

import random

import pytest

from app.batching.batch_times import BatchTimes


def _taught(seconds, sizes):
    times = BatchTimes()
    for rows in sizes:
        times.add(rows, seconds(rows))
    return times


def _sizes(count=200):
    chance = random.Random(7)
    return [chance.randint(1, 64) for _ in range(count)]


def test_nothing_is_known_at_first():
    """Before the first batch no time is expected and nothing is doubted."""
    assert BatchTimes().expected_s(64) == 0
    assert BatchTimes().margin_s() == 0


@pytest.mark.parametrize("rows", [1, 20, 64])
def test_a_line_is_learnt(rows):
    """Batches that take 50 ms and 2 ms a row are expected to within 2 ms."""
    times = _taught(lambda n: 0.05 + 0.002 * n, _sizes())
    assert times.expected_s(rows) == pytest.approx(0.05 + 0.002 * rows, abs=0.002)
    assert times.margin_s() < 0.005


def test_one_size_tells_no_slope():
    """After batches of one size all others are expected to take as long."""
    times = _taught(lambda n: 0.3, [8] * 50)
    assert times.expected_s(1) == times.expected_s(64) == pytest.approx(0.3)


def test_a_slope_is_kept_until_another_is_seen():
    """After any number of batches of one row, large ones are expected as before."""
    times = _taught(lambda n: 0.05 + 0.002 * n, [*_sizes(), *[1] * 500])
    assert times.expected_s(64) == pytest.approx(0.178, abs=0.002)
    for rows in _sizes():
        times.add(rows, 0.05)
    assert times.expected_s(64) == pytest.approx(0.05, abs=0.002)


def test_old_batches_fade():
    """When batches take twice as long, that is expected after twenty of them."""
    times = _taught(lambda n: 0.1, _sizes(50))
    for rows in _sizes(40):
        times.add(rows, 0.2)
    assert times.expected_s(32) == pytest.approx(0.2, rel=0.1)


def test_one_outlier_is_not_believed():
    """A single batch of ten seconds among those of 100 ms adds little."""
    times = _taught(lambda n: 0.1, [8] * 50)
    times.add(8, 10.0)
    assert times.expected_s(8) < 0.13


def test_doubt_grows_with_scatter():
    """Batches that take 80 to 120 ms leave a margin of some times their scatter."""
    chance = random.Random(7)
    times = _taught(lambda n: chance.uniform(0.08, 0.12), [8] * 200)
    assert 0.01 < times.margin_s() < 0.1


def test_more_rows_never_take_less():
    """Where smaller batches happen to be slower, larger ones are expected as slow."""
    times = _taught(lambda n: 0.1 if n > 8 else 0.2, [1, 64] * 20)
    assert times.expected_s(64) >= times.expected_s(1)
