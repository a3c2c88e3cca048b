"""BatchTimes: expected seconds of a batch, learned from those that ran."""

import random

import pytest

from app.batching.batch_times import BatchTimes


def _learned(seconds, sizes):
    times = BatchTimes()
    for rows in sizes:
        times.add(rows, seconds(rows))
    return times


def _sizes(count=200):
    chance = random.Random(7)
    return [chance.randint(1, 64) for _ in range(count)]


def test_batch_times_start_at_zero():
    """Before the first batch the expected time and its margin are 0."""
    assert BatchTimes().expected_s(64) == 0
    assert BatchTimes().margin_s() == 0


@pytest.mark.parametrize("rows", [1, 20, 64])
def test_batch_times_learn_a_line(rows):
    """Batches that take 50 ms and 2 ms a row are expected to within 2 ms."""
    times = _learned(lambda n: 0.05 + 0.002 * n, _sizes())
    assert times.expected_s(rows) == pytest.approx(0.05 + 0.002 * rows, abs=0.002)
    assert times.margin_s() < 0.005


def test_batch_times_of_one_size_have_no_slope():
    """After batches of one size all others are expected to take as long."""
    times = _learned(lambda n: 0.3, [8] * 50)
    assert times.expected_s(1) == times.expected_s(64) == pytest.approx(0.3)


def test_batch_times_keep_their_slope_through_batches_of_one_size():
    """After many batches of one row, large ones are expected to take as before."""
    times = _learned(lambda n: 0.05 + 0.002 * n, [*_sizes(), *[1] * 500])
    assert times.expected_s(64) == pytest.approx(0.178, abs=0.002)
    for rows in _sizes():
        times.add(rows, 0.05)
    assert times.expected_s(64) == pytest.approx(0.05, abs=0.002)


def test_batch_times_forget_old_batches():
    """When batches take twice as long, that is expected after twenty of them."""
    times = _learned(lambda n: 0.1, _sizes(50))
    for rows in _sizes(40):
        times.add(rows, 0.2)
    assert times.expected_s(32) == pytest.approx(0.2, rel=0.1)


def test_batch_times_limit_an_outlier():
    """A single batch of ten seconds among those of 100 ms adds little."""
    times = _learned(lambda n: 0.1, [8] * 50)
    times.add(8, 10.0)
    assert times.expected_s(8) < 0.13


def test_batch_times_margin_grows_with_the_deviation():
    """Batches that take 80 to 120 ms leave a margin of a few mean deviations."""
    chance = random.Random(7)
    times = _learned(lambda n: chance.uniform(0.08, 0.12), [8] * 200)
    assert 0.01 < times.margin_s() < 0.1


def test_batch_times_have_no_negative_slope():
    """Larger batches are never expected to be faster than smaller ones."""
    times = _learned(lambda n: 0.1 if n > 8 else 0.2, [1, 64] * 20)
    assert times.expected_s(64) >= times.expected_s(1)
