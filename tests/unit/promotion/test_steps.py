"""Steps of a rollout by the time since it began."""

import pytest

from app.promotion.steps import Phase, phase_at
from app.settings.promotion_config import PromotionConfig

STEPS = PromotionConfig(steps=(1.0, 10.0, 100.0), step_s=60.0, watch_s=300.0)


@pytest.mark.parametrize(
    ("elapsed_s", "phase"),
    [
        (0.0, Phase(0, 1.0)),
        (59.9, Phase(0, 1.0)),
        (60.0, Phase(1, 10.0)),
        (179.9, Phase(2, 100.0)),
        (180.0, Phase(3, 100.0)),
        (479.9, Phase(3, 100.0)),
        (480.0, None),
        (1e9, None),
    ],
)
def test_phase_is_a_step_then_the_watch_then_nothing(elapsed_s, phase):
    """Each step takes `step_s`, the watch `watch_s`."""
    assert phase_at(elapsed_s, STEPS) == phase


def test_rollout_without_a_watch_ends_with_its_last_step():
    """It is over at once."""
    config = PromotionConfig(steps=(100.0,), step_s=1.0, watch_s=0.0)
    assert phase_at(0.5, config) == Phase(0, 100.0)
    assert phase_at(1.0, config) is None
