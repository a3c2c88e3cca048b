"""Rates, percentiles and means from the sums of metrics before and after a second."""

import math
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.web.page.samples import percentile, sample_of
from app.totals import STAGES, Sums, Totals

BOUNDS = (0.001, 0.01, 0.1, 1.0, 60.0, math.inf)


def buckets_of(seconds):
    """Count observations as a histogram does: those up to each bound."""
    numbers = [0] * len(BOUNDS)
    for each in seconds:
        numbers[bisect_left(BOUNDS, each)] += 1
    return dict(zip(BOUNDS, accumulate(numbers), strict=True))


def series_of(seconds):
    """The same, by the series' `le`, as in Totals."""
    names = {math.inf: "+Inf"}
    return {names.get(le, str(le)): n for le, n in buckets_of(seconds).items()}


def sums(rejected=None, **versions):
    """Sums of versions, given as model_version=Totals(...)."""
    named = {tuple(name.split("_")): totals for name, totals in versions.items()}
    return Sums(named, rejected or {})


@given(
    st.lists(st.floats(0, 60), min_size=1, max_size=200),
    st.sampled_from((0.5, 0.95, 0.99)),
)
@example([1.0, 0.0078125], 0.5)
def test_percentile_is_in_the_bucket_of_the_exact_one(seconds, share):
    """The estimate and the exact percentile lie between the same two bounds."""
    exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    place = bisect_left(BOUNDS, exact)
    low, high = (0.0, *BOUNDS)[place : place + 2]
    assert low <= percentile(buckets_of(seconds), share) <= high


def test_percentile_is_linear_within_a_bucket():
    """Half of the way through a bucket's observations is half of its width."""
    assert percentile({0.1: 0, 0.3: 4, math.inf: 4}, 0.5) == pytest.approx(0.2)


def test_percentile_beyond_the_last_bound_is_the_bound():
    """Of observations above all finite bounds only that is known."""
    assert percentile(buckets_of([70.0, 80.0]), 0.5) == 60


@pytest.mark.parametrize("buckets", [{}, buckets_of([])])
def test_percentile_without_observations_is_none(buckets):
    """No request has no percentile."""
    assert percentile(buckets, 0.5) is None


def test_sample_has_rates_and_means_of_what_was_added():
    """Differences are divided by the seconds, requests, batches and engines."""
    before = Totals(
        by_status={"200": 10},
        buckets=series_of([0.005] * 10),
        stage_seconds=dict.fromkeys(STAGES, 1.0),
        infer_seconds=1.0,
        rows=10,
        batches=10,
    )
    after = Totals(
        by_status={"200": 14, "503": 2},
        buckets=series_of([0.005] * 10 + [0.05] * 4 + [0.5] * 2),
        stage_seconds=dict(zip(STAGES, (1.0, 1.4, 1.8, 2.2), strict=True)),
        infer_seconds=2.5,
        rows=22,
        batches=14,
        queue_rows=7,
        ceiling_rows=32,
    )
    one, other = sums({"late": 5}, m_1=before), sums({"late": 9, "full": 2}, m_1=after)
    sample = sample_of(one, other, 2.0, 3)
    model = sample["models"]["m"]
    assert model["status"] == {"200": 2.0, "503": 1.0}
    stages = {"decode": 0.0, "queue": 100.0, "infer": 200.0, "encode": 300.0}
    assert model["stages_ms"] == pytest.approx(stages)
    assert (model["batch_rows"], model["busy"]) == (3.0, 0.25)
    assert (model["queue_rows"], model["ceiling_rows"]) == (7, 32)
    # Three of six requests, in a bucket of four from 10 to 100 ms.
    assert model["p50_ms"] == pytest.approx(77.5)
    assert 100 < model["p95_ms"] < model["p99_ms"] <= 1000
    assert sample["rejected"] == {"late": 2.0, "full": 1.0}


def test_versions_of_a_model_are_added():
    """Two versions are one model, with the lower of their ceilings."""
    first = Totals(
        {"200": 3}, rows=4, batches=1, queue_rows=1, ceiling_rows=64, buckets={"1.0": 3}
    )
    second = Totals(
        {"200": 1}, rows=8, batches=2, queue_rows=2, ceiling_rows=8, buckets={"1.0": 1}
    )
    sample = sample_of(sums(), sums(m_1=first, m_2=second), 1.0, 1)
    model = sample["models"]["m"]
    assert model["status"] == {"200": 4.0}
    assert (model["batch_rows"], model["queue_rows"]) == (4.0, 3)
    assert model["ceiling_rows"] == 8
    assert model["p50_ms"] == 500


def test_counters_that_went_back_count_from_zero():
    """After a restart all that a counter shows is new."""
    before = Totals({"200": 10, "400": 1}, buckets={"1.0": 11}, rows=10, batches=10)
    after = Totals({"200": 3, "400": 2}, buckets={"1.0": 5}, rows=6, batches=3)
    sample = sample_of(
        sums({"late": 2}, m_1=before), sums({"late": 1}, m_1=after), 1, 1
    )
    model = sample["models"]["m"]
    assert model["status"] == {"200": 3.0, "400": 2.0}
    assert (model["batch_rows"], model["p50_ms"]) == (2.0, 500)
    assert sample["rejected"] == {"late": 1.0}


def test_second_without_requests_has_no_times():
    """Without a request there is no percentile, stage, batch or status."""
    same = sums(m_1=Totals({"200": 10}, buckets=series_of([0.5] * 10)))
    model = sample_of(same, same, 1.0, 1)["models"]["m"]
    assert model["status"] == {}
    assert model["stages_ms"] == dict.fromkeys(STAGES)
    for name in ("p50_ms", "p95_ms", "p99_ms", "batch_rows", "ceiling_rows"):
        assert model[name] is None
    assert (model["busy"], model["queue_rows"]) == (0.0, 0)


def test_requests_without_a_model_are_there_only_if_there_are_any():
    """They have the name "", and do not appear in a quiet second."""
    after = Sums({("", ""): Totals({"404": 3})})
    assert sample_of(Sums(), after, 1.0, 1)["models"][""]["status"] == {"404": 3.0}
    assert sample_of(after, after, 1.0, 1)["models"] == {}
