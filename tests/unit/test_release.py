"""When a batch starts."""

import pytest

from app.serving.release import Adaptive, FixedTimeout, release_for
from app.settings import Settings


@pytest.mark.parametrize(
    ("rows", "age_s", "hold_s"),
    [
        pytest.param(1, 0.0, 0.5, id="just arrived"),
        pytest.param(3, 0.25, 0.25, id="half the timeout"),
        pytest.param(1, 0.5, 0.0, id="as old as the timeout"),
        pytest.param(1, 2.0, -1.5, id="older, behind a slow batch"),
        pytest.param(4, 0.0, 0.0, id="a full batch"),
        pytest.param(5, 0.0, 0.0, id="more than a full batch"),
    ],
)
def test_fixed_timeout_holds_for_what_is_left(rows, age_s, hold_s):
    """FixedTimeout holds until the oldest row has its age or the batch is full."""
    rule = FixedTimeout(timeout_s=0.5, max_batch_size=4)
    assert rule.hold_s(rows, oldest_at=1000.0, now=1000.0 + age_s) == hold_s


@pytest.mark.parametrize("rows", [1, 64], ids=["one row", "many rows"])
def test_adaptive_never_holds(rows):
    """Adaptive starts at once, whatever waits."""
    assert Adaptive().hold_s(rows, oldest_at=1000.0, now=1000.0) == 0


def test_no_timeout_means_the_adaptive_rule():
    """Where no timeout is set the rule is Adaptive."""
    assert isinstance(release_for(Settings(batch_timeout_micros=None)), Adaptive)


@pytest.mark.parametrize(
    ("micros", "hold_s"), [(250_000, 0.25), (0, 0.0)], ids=["250 ms", "zero"]
)
def test_a_timeout_in_microseconds_means_the_fixed_rule(micros, hold_s):
    """A timeout of some microseconds, zero too, makes a FixedTimeout of seconds."""
    rule = release_for(Settings(batch_timeout_micros=micros, max_batch_size=2))
    assert isinstance(rule, FixedTimeout)
    assert rule.hold_s(1, oldest_at=1000.0, now=1000.0) == hold_s
    assert rule.hold_s(2, oldest_at=1000.0, now=1000.0) == 0
