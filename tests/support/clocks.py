"""Fake clocks."""

import time
from types import SimpleNamespace

import pytest


def standing_clock(patch: pytest.MonkeyPatch, *modules: str) -> SimpleNamespace:
    """Give these modules a monotonic clock that only changes with its `now`."""
    clock = SimpleNamespace(now=100.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now)
    for module in modules:
        patch.setattr(f"{module}.time", fake)
    return clock


class OffsetClock:
    """The monotonic clock, and `ahead_s` seconds that a test has let pass."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s
