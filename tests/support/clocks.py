"""Clocks that are set by hand."""

from types import SimpleNamespace

import pytest


def standing_clock(patch: pytest.MonkeyPatch, *modules: str) -> SimpleNamespace:
    """A monotonic clock of these modules that stands still unless its `now` is set."""
    clock = SimpleNamespace(now=100.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now)
    for module in modules:
        patch.setattr(f"{module}.time", fake)
    return clock
