"""The steps of a rollout, as a function of the time since it began."""

from typing import NamedTuple

from app.settings.promotion_config import PromotionConfig


class Phase(NamedTuple):
    """A part of a rollout; the new version gets so many percent of the requests."""

    number: int
    percent: float


def phase_at(elapsed_s: float, config: PromotionConfig) -> Phase | None:
    """Return the step of a rollout, or the watch behind the last one; None: over."""
    steps = config.steps
    number = int(elapsed_s // config.step_s)
    if number < len(steps):
        return Phase(number, steps[number])
    if elapsed_s < len(steps) * config.step_s + config.watch_s:
        return Phase(len(steps), steps[-1])
    return None
