"""Headless Chromium for tests, which are skipped without it."""

import shutil

import pytest

from testing.browser import browsing, emulate

__all__ = ["browsing", "emulate", "needs_chromium"]

needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="Debian's packages chromium and chromium-driver are not installed",
)
