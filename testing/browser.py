"""Headless Chromium, from Debian's packages chromium and chromium-driver."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator

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


def emulate(browser: webdriver.Chrome, width: int, height: int, scheme: str) -> None:
    """Show pages at a size in pixels, and in the color scheme light or dark."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
