"""[promotion] in basket.toml: how a new version proves itself before it serves."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.settings import checks
from app.settings.tables import number, read_table

_DAY_S = 86_400
_NAME = "promotion"


@dataclass(frozen=True)
class PromotionConfig:
    """The conditions of a promotion, as docs/versions.md describes them.

    `replay` is a number of rows. `min_agreement` and `max_error_rate` are shares, 0 to
    1; `max_difference` is absolute, None: not checked. `max_slowdown` is a factor, of
    the time of a batch before the version serves, of the 99th percentile of latency
    afterwards. `steps` are
    percent of the traffic, the last one 100.
    """

    replay: int = 200
    min_agreement: float = 0.98
    max_difference: float | None = None
    max_slowdown: float = 1.5
    max_error_rate: float = 0.005
    require_same_signature: bool = True
    steps: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)
    step_s: float = 60.0
    watch_s: float = 300.0


def read_promotion(table: Mapping[str, Any]) -> PromotionConfig:
    """Return the values of the table [promotion].

    Raises:
        SettingsError: an unknown key or an invalid value.
    """
    return PromotionConfig(**read_table(_NAME, table, _CHECKS))


def _steps(value: object) -> tuple[float, ...]:
    percent = number(0, 100, excludes_low=True)
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of percentages, such as [1, 10, 50, 100]")
    steps = tuple(percent(each) for each in value)
    if any(first >= second for first, second in itertools.pairwise(steps)):
        raise ValueError("each step must be larger than the one before")
    if steps[-1] != 100:  # noqa: PLR2004
        raise ValueError("the last step must be 100")
    return steps


_CHECKS = {
    "replay": checks.whole(1, 100_000),
    "min_agreement": number(0, 1),
    "max_difference": number(0, 1e300),
    "max_slowdown": number(1, 1000),
    "max_error_rate": number(0, 1),
    "require_same_signature": checks.true_or_false,
    "steps": _steps,
    "step_s": number(0, _DAY_S, excludes_low=True),
    "watch_s": number(0, _DAY_S),
}
