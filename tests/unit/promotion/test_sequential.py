"""Sequential tests of a rate: monotone, symmetric, and rarely wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.promotion.sequential import (
    against_at_least,
    against_at_most,
    against_no_worse,
)

rates = st.floats(0.0001, 0.9999)
trials = st.integers(1, 5000)


@given(st.data(), trials, rates)
def test_evidence_against_at_most_grows_with_hits(data, number, rate):
    """More hits of as many trials are more evidence that the rate is higher."""
    hits = data.draw(st.integers(0, number - 1))
    fewer, more = against_at_most([hits, hits + 1], number, rate)
    assert fewer < more


@given(st.data(), trials, rates)
def test_evidence_against_at_least_is_that_of_misses(data, number, rate):
    """A high rate of hits is a low rate of misses."""
    hits = data.draw(st.integers(0, number))
    expected = against_at_most(number - hits, number, 1 - rate)
    assert against_at_least(hits, number, rate) == pytest.approx(expected, abs=1e-6)


@given(st.data(), trials, rates, rates)
def test_evidence_grows_as_the_allowed_rate_shrinks(data, number, rate, other):
    """What speaks against a rate speaks more against a lower one, once it speaks."""
    hits = data.draw(st.integers(0, number))
    low, high = sorted((rate, other))
    if (evidence := against_at_most(hits, number, high)) > 0:
        assert against_at_most(hits, number, low) >= evidence - 1e-9


def test_no_trials_are_no_evidence():
    """Before the first request nothing is known."""
    assert against_at_most(0, 0, 0.01) == pytest.approx(0)
    assert against_no_worse((0, 0), (0, 0), 0.01, 1) == pytest.approx(0)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_rates_of_0_and_1_are_finite(rate):
    """A rate of exactly 0 or 1 gives a number."""
    assert np.isfinite(against_at_most(3, 10, rate))
    assert np.isfinite(against_no_worse((3, 10), (1, 10), rate, 2))


@pytest.mark.parametrize("rate", [0.005, 0.01, 0.1, 0.5])
def test_evidence_is_on_average_at_most_1(rate):
    """Over all numbers of hits of 200 trials, a true rate has a mean evidence of 1."""
    number = 200
    hits = np.arange(number + 1)
    logs = np.log([float(math.comb(number, each)) for each in hits])
    chances = logs + hits * math.log(rate) + (number - hits) * math.log(1 - rate)
    for evidence in (against_at_most, against_at_least):
        weighted = np.exp(chances + evidence(hits, number, rate))
        assert weighted.sum() == pytest.approx(1)


def test_true_rate_is_seldom_rejected_at_any_time():
    """Of 2,000 sequences of 1,000 trials few ever reach an evidence of 20."""
    random = np.random.default_rng(1)
    seen = random.random((2000, 1000)) < 0.01
    sums = seen.cumsum(axis=1)[:, 9::10]
    evidence = against_at_most(sums, np.arange(10, 1001, 10), 0.01)
    rejected = (evidence >= math.log(20)).any(axis=1).mean()
    assert 0.002 < rejected <= 0.05


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.3])
def test_equal_rates_are_seldom_called_worse(rate):
    """Of 60 pairs of equal sides few ever reach an evidence of 20."""
    random = np.random.default_rng(2)
    rejected = 0
    for _ in range(60):
        own, other = (random.binomial(200, rate, 8).cumsum() for _ in range(2))
        pairs = zip(own, other, range(200, 1601, 200), strict=True)
        rejected += any(
            against_no_worse((mine, n), (theirs, n), 0.005, 1) >= math.log(20)
            for mine, theirs, n in pairs
        )
    assert rejected <= 3


def test_worse_needs_more_than_the_factor_of_the_other_rate():
    """At twice the other rate a factor of 1 is exceeded, and one of 2 is not."""
    own, other = (800, 20_000), (400, 20_000)
    assert against_no_worse(own, other, 0.001, 1) > 10
    assert against_no_worse(own, other, 0.001, 2) < 1


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_worse_other_side_never_adds_evidence(hits, others):
    """Each hit of the other side speaks for the own one."""
    fewer, more = sorted((hits, others))
    own = 60, 300
    high = against_no_worse(own, (fewer, 300), 0.01, 1)
    assert against_no_worse(own, (more, 300), 0.01, 1) <= high + 1e-9
