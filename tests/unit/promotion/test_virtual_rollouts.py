"""Rollouts in virtual time: equal versions stay, faulty ones go back."""

import pytest

from app.settings.promotion_config import PromotionConfig
from tests.support.virtual_rollout import Fault, Rollout, Workload

CONFIG = PromotionConfig(steps=(10, 50, 100), step_s=6, watch_s=6)
LIGHT = Workload(60, 0.005, 0.001)
HEAVY = Workload(150, 0.03, 0.0005)


def outcome(load, fault, config=CONFIG, seed=1, before_s=10.0):
    return Rollout(load, fault, config, seed).run(before_s)


@pytest.mark.parametrize(
    "load",
    [
        *(LIGHT, HEAVY),
        Workload(60, 0.005, 0.001, pause_every_s=5, pause_s=2),
        Workload(60, 0.005, 0.001, error_rate=0.05),
    ],
    ids=["light", "heavy", "pauses", "errors on both sides"],
)
def test_equal_versions_do_not_go_back(load):
    """Queues, batches, pauses and errors of both sides are not the candidate's."""
    found = outcome(load, Fault())
    assert found.reason == ""
    assert found.seconds == pytest.approx(24, abs=0.3)


@pytest.mark.parametrize(
    ("fault", "most", "reason"),
    [
        (Fault(error_rate=1.0), 15, "500, 504 or 507"),
        (Fault(error_rate=0.1), 250, "500, 504 or 507"),
        (Fault(nan_rate=0.1), 250, "NaN"),
    ],
)
def test_faulty_version_goes_back_at_a_small_share(fault, most, reason):
    """Failures and NaN are seen within so many requests at 10 %."""
    found = outcome(LIGHT, fault, PromotionConfig(steps=(10, 100), step_s=60))
    assert found.reason.startswith(reason)
    assert found.candidates <= most


def test_slow_version_on_its_own_device_goes_back():
    """Three times slower than the other side beside it is too slow."""
    load = Workload(60, 0.03, 0.001, is_shared=False)
    config = PromotionConfig(steps=(50, 100), step_s=30)
    found = outcome(load, Fault(slowdown=3), config)
    assert found.reason.startswith("more than")
    assert found.seconds < 30


def test_slow_version_on_a_shared_device_goes_back_once_alone():
    """It slows down the other side too, and is compared with what was before."""
    load = Workload(60, 0.03, 0.001)
    config = PromotionConfig(steps=(50, 100), step_s=10)
    found = outcome(load, Fault(slowdown=3), config, before_s=40)
    assert found.reason.startswith("more than")
    assert 10 < found.seconds < 40


def test_same_seed_gives_the_same_rollout():
    """Figures can be repeated."""
    load = Workload(60, 0.005, 0.001, pause_every_s=5, pause_s=2)
    fault = Fault(error_rate=0.05)
    assert outcome(load, fault, seed=3) == outcome(load, fault, seed=3)
