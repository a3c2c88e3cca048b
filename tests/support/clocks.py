"""Fake clocks."""

from types import SimpleNamespace

import pytest


def standing_clock(patch: pytest.MonkeyPatch, *modules: str) -> SimpleNamespace:
    """Give these modules a monotonic clock that only changes with its `now`."""
    clock = SimpleNamespace(now=100.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now)
    for module in modules:
        patch.setattr(f"{module}.time", fake)
    return clock
