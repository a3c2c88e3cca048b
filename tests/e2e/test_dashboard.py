"""Locust's dashboard in a browser, against a running Basket."""

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from testing.server import serving, simulated_models
from tests.support.browser import browsing, needs_chromium
from tests.support.dashboard import dashboard

pytestmark = needs_chromium
QUICK = {"base_ms": 20, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
_CHART = (
    "return [...document.querySelectorAll('canvas')].map(c => c.toDataURL()).join()"
)


@pytest.fixture
def url(tmp_path):
    """Return the address of a dashboard that has a server to load."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with (
        serving("--threads=20", model_dir=folder) as server,
        dashboard(f"http://127.0.0.1:{server.port}") as started,
    ):
        yield started.url


def _fill(browser, name, value):
    field = browser.find_element(By.NAME, name)
    # The dashboard keeps the old value when the field is cleared by script.
    field.send_keys("\b" * 10 + value)


def _text(browser):
    return browser.find_element(By.TAG_NAME, "body").text


def _stats(browser):
    """Return the statistics that the dashboard shows."""
    return browser.execute_async_script(
        "fetch('stats/requests').then(r => r.json()).then(arguments[0])"
    )


def _answered(browser):
    return sum(each["num_requests"] for each in _stats(browser)["stats"])


def test_run_started_in_the_dashboard_updates_its_charts(url):
    """A run started in the dashboard moves its charts, and no request fails."""
    with browsing() as browser:
        browser.get(url)
        soon = WebDriverWait(browser, 60)
        soon.until(lambda _: "START" in _text(browser))
        assert "SelfCheckout" in _text(browser)
        shapes = browser.find_element(By.NAME, "shapeClass").text.split()
        assert shapes == ["Default", "Ramp", "Spike"]
        rows = browser.find_elements(By.CSS_SELECTOR, "tr")
        (saturation,) = [row for row in rows if "Saturation" in row.text]
        saturation.find_element(By.CSS_SELECTOR, "input").click()
        _fill(browser, "userCount", "8")
        _fill(browser, "spawnRate", "8")
        browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        soon.until(lambda _: "RUNNING" in _text(browser))
        soon.until(lambda _: "/predict" in _text(browser))
        for tab in browser.find_elements(By.CSS_SELECTOR, "[role=tab]"):
            if tab.text == "CHARTS":
                tab.click()
        soon.until(lambda _: _stats(browser)["total_rps"] > 0)
        before = browser.execute_script(_CHART)
        seen = _answered(browser)
        soon.until(lambda _: _answered(browser) > seen + 10)
        soon.until(lambda _: browser.execute_script(_CHART) != before)
        assert _stats(browser)["user_count"] == 8
        assert _stats(browser)["fail_ratio"] == 0
