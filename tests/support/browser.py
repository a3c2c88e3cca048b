"""Headless Chromium, from Debian's packages chromium and chromium-driver."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from selenium import webdriver

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,1400",
)
needs_chromium = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="Debian's packages chromium and chromium-driver are not installed",
)


@contextlib.contextmanager
def browsing(*flags: str) -> Iterator[webdriver.Chrome]:
    """Yield a browser with an empty profile and more flags; close it at the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, *flags):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as profile:
        options.add_argument(f"--user-data-dir={profile}")
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        browser = webdriver.Chrome(options, service)
        try:
            yield browser
        finally:
            browser.quit()
