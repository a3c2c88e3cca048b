"""Verdicts on a rollout: what sends traffic back, after how much, and in what words."""

import random

import pytest

from app.promotion.evidence import Evidence
from app.promotion.judgment import problem
from app.settings.promotion_config import PromotionConfig

NAME = "digits"
CONFIG = PromotionConfig(steps=(1, 10, 50, 100))


class Rollout:
    """Requests of both sides, 0.1 s apart on each, and the verdict on them."""

    def __init__(self, config=CONFIG):
        self.now = 0.0
        self.config = config
        self.evidence = Evidence(None, lambda: self.now)
        self.random = random.Random(1)

    def serve(self, number=300, phase=1, **answer):
        return self._count(number, phase, is_candidate=False, **answer)

    def try_new(self, number=300, phase=1, **answer):
        return self._count(number, phase, is_candidate=True, **answer)

    def _count(self, number, phase, is_candidate, wrong=0, every_s=0.1, **answer):
        """Count requests, of which the first `wrong` get `answer`."""
        for index in range(number):
            self.now += every_s
            seen = {"status": 200, "seconds": self.random.uniform(0.01, 0.02)}
            if index < wrong:
                seen |= answer
            has_nan = seen.get("nan", False)
            self.evidence.count(
                *(NAME, phase, is_candidate, seen["status"], seen["seconds"], has_nan)
            )
        return self

    def verdict(self, phase=1):
        return problem(self.evidence.read(NAME), phase, self.config)


def test_nothing_counted_is_no_problem():
    """Before the first request there is nothing to say."""
    assert Rollout().verdict() == ""


def test_equal_sides_are_no_problem():
    """Ten thousand requests of each side, in which nothing differs, are no reason."""
    assert Rollout().serve(10_000).try_new(10_000).verdict() == ""


@pytest.mark.parametrize("status", [500, 504, 507])
def test_third_failure_of_a_version_that_always_fails_is_noticed(status):
    """Two failures may be chance; with the third all requests have failed."""
    rollout = Rollout().serve()
    assert rollout.try_new(2, wrong=2, status=status).verdict() == ""
    text = rollout.try_new(1, wrong=1, status=status).verdict()
    assert text == (
        "500, 504 or 507 for 3 of 3 requests (100 %); 0.5 % are allowed "
        "(max_error_rate); 0 % of the version before"
    )


def test_failures_are_noticed_without_another_side():
    """A version that is the first one is judged by max_error_rate alone."""
    text = Rollout().try_new(3, wrong=3, status=500).verdict()
    assert text == (
        "500, 504 or 507 for 3 of 3 requests (100 %); 0.5 % are allowed "
        "(max_error_rate)"
    )


def test_max_error_rate_is_the_rate_that_is_allowed():
    """14 of 310 failures are too many for half a percent, and not for 10 %."""
    text = Rollout().serve(3000).try_new(310, wrong=14, status=500).verdict()
    assert text.startswith("500, 504 or 507 for 14 of 310 requests (4.5 %); 0.5 % are")
    allowed = PromotionConfig(steps=CONFIG.steps, max_error_rate=0.1)
    rollout = Rollout(allowed).serve(3000)
    assert rollout.try_new(310, wrong=14, status=500).verdict() == ""


def test_errors_that_the_other_side_has_too_are_no_problem():
    """Clients whose requests fail on both sides do not send the candidate back."""
    rollout = Rollout().serve(3000, wrong=150, status=500)
    assert rollout.try_new(310, wrong=14, status=500).verdict() == ""


def test_errors_of_one_batch_are_one_failure():
    """A batch of 64 that fails once among thousands is no reason to go back."""
    rollout = Rollout().serve(3000).try_new(1000)
    assert rollout.try_new(64, wrong=64, status=500, every_s=0).verdict() == ""


def test_statuses_of_clients_are_no_errors():
    """Refused input, such as 400, does not send traffic back."""
    assert Rollout().serve().try_new(wrong=300, status=400).verdict() == ""


def test_open_circuit_breaker_is_noticed():
    """Errors all at once and refusals from then on are an outage."""
    rollout = Rollout().serve().try_new(30, wrong=30, status=500, every_s=0)
    assert rollout.verdict() == ""
    text = rollout.try_new(150, wrong=150, status=503).verdict()
    assert text == (
        "500, 503, 504 or 507 for 180 of 180 requests (100 %); 0 % of the version "
        "before"
    )


def test_refusals_on_both_sides_are_no_problem():
    """An overload that both sides refuse is not the candidate's fault."""
    rollout = Rollout().serve(wrong=240, status=503)
    assert rollout.try_new(wrong=240, status=503).verdict() == ""


def test_nan_is_noticed_unless_the_other_side_has_half_as_much():
    """NaN in 2 % is too much, and in 4 % not where the other side has it in 2 %."""
    nan = {"wrong": 20, "nan": True}
    text = Rollout().serve(3000).try_new(1000, **nan).verdict()
    assert text == (
        "NaN in the answers to 20 of 1,000 requests (2 %); 0.1 % are allowed; "
        "0 % of the version before"
    )
    rollout = Rollout().serve(20_000, wrong=400, nan=True)
    assert rollout.try_new(20_000, wrong=800, nan=True).verdict() == ""


def test_slow_candidate_is_noticed_with_its_limit():
    """Three times the latency is beyond max_slowdown."""
    rollout = Rollout().serve(3000)
    assert rollout.try_new(19, wrong=19, seconds=0.06).verdict() == ""
    text = rollout.try_new(11, wrong=11, seconds=0.06).verdict()
    assert text == (
        "more than 32 ms for 30 of 30 requests (100 %); 1 % are allowed; 0 % of the "
        "version before; its 99th percentile is at most 20 ms, and 1.5 times as much "
        "is allowed (max_slowdown)"
    )


@pytest.mark.parametrize(("slowdown", "is_noticed"), [(1.5, True), (4.0, False)])
def test_max_slowdown_is_the_factor_that_is_allowed(slowdown, is_noticed):
    """Three times the latency is allowed where max_slowdown says so."""
    config = PromotionConfig(steps=CONFIG.steps, max_slowdown=slowdown)
    rollout = Rollout(config).serve(3000).try_new(100, wrong=100, seconds=0.06)
    assert bool(rollout.verdict()) is is_noticed


def test_slowness_waits_until_the_other_side_is_known():
    """A 99th percentile of 100 requests is a guess, by which nobody is judged."""
    rollout = Rollout().serve(100).try_new(100, wrong=100, seconds=0.06)
    assert rollout.verdict() == ""


def test_slowness_of_both_sides_in_a_pause_is_no_problem():
    """What makes 5 % of both sides slow is not the candidate's."""
    rollout = Rollout().serve(3000, wrong=150, seconds=1)
    assert rollout.try_new(1000, wrong=50, seconds=1).verdict() == ""


def test_slow_requests_after_one_pause_count_as_one():
    """200 requests that waited for the same pause are one event."""
    rollout = Rollout().serve(3000).try_new(1000)
    assert rollout.try_new(200, wrong=200, seconds=2, every_s=0.001).verdict() == ""


def test_differences_of_a_millisecond_are_no_slowdown():
    """A version that answers in a fraction of a millisecond may take 1 ms more."""
    rollout = Rollout().serve(3000, wrong=3000, seconds=0.0005)
    assert rollout.try_new(1000, wrong=1000, seconds=0.0015).verdict() == ""


def test_candidate_alone_is_compared_with_the_phase_before_the_rollout():
    """At 100 % the slow candidate is found by what was before it shared the device."""
    rollout = Rollout().serve(3000, phase=0)
    rollout.serve(3000, wrong=3000, seconds=0.06).try_new(
        3000, wrong=3000, seconds=0.06
    )
    assert rollout.verdict(phase=1) == ""
    rollout.try_new(100, phase=4, wrong=100, seconds=0.06)
    assert "for 100 of 100 requests" in rollout.verdict(phase=4)


@pytest.mark.parametrize(
    ("seconds", "is_noticed"), [(5, False), (60, True)], ids=["burst", "for good"]
)
@pytest.mark.parametrize("answer", [{"status": 503}, {"seconds": 0.06}], ids=str)
def test_burst_that_only_the_candidate_had_is_no_problem(seconds, is_noticed, answer):
    """At 100 % nobody tells what the other side had done meanwhile."""
    rollout = Rollout().serve(3000).try_new(100, phase=4)
    rollout.try_new(100 * seconds, phase=4, wrong=10**6, every_s=0.01, **answer)
    assert bool(rollout.verdict(phase=4)) is is_noticed


def test_phases_are_judged_apart():
    """Errors of an earlier phase are not counted again."""
    rollout = Rollout().serve().try_new(30, wrong=30, status=500)
    rollout.serve(phase=2).try_new(phase=2)
    assert rollout.verdict(phase=1)
    assert rollout.verdict(phase=2) == ""


def test_phases_beyond_the_last_are_judged():
    """A rollout of a hundred steps is judged to its end."""
    config = PromotionConfig(steps=tuple(range(1, 101)))
    rollout = Rollout(config).try_new(4, phase=90, wrong=4, status=500)
    assert "4 of 4 requests" in rollout.verdict(phase=90)


def test_start_of_a_phase_is_compared_with_the_phase_before():
    """Failures are noticed before the other side has many requests in this phase."""
    rollout = Rollout().serve(3000).serve(12, phase=2)
    rollout.try_new(3, phase=2, wrong=3, status=500)
    assert "for 3 of 3 requests" in rollout.verdict(phase=2)


def test_few_requests_of_the_other_side_have_to_do_where_there_are_no_more():
    """Twelve requests of which half failed, too, speak for the candidate."""
    rollout = Rollout().serve(12, wrong=6, status=500)
    assert rollout.try_new(12, wrong=6, status=500).verdict() == ""
