"""axe-core, which finds what keeps people from using a page."""

from typing import Any

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from testing.server import ROOT

# `make test` installs it where npm is.
_FILE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
_SERIOUS = ("moderate", "serious", "critical")
_RUN = """
    const done = arguments[0];
    axe.run({resultTypes: ['violations']}).then(
        found => done(found.violations), error => done(String(error)));
"""

needs_axe = pytest.mark.skipif(
    not _FILE.exists(), reason="axe-core is not installed: make test does it with npm"
)


def findings(browser: WebDriver) -> list[tuple[str, str]]:
    """Return the rule and the element of each finding on the page that is shown.

    Those that are minor are left out.
    """
    browser.execute_script(_FILE.read_text())
    violations: list[dict[str, Any]] | str = browser.execute_async_script(_RUN)
    assert not isinstance(violations, str), violations
    return [
        (each["id"], node["html"])
        for each in violations
        if each["impact"] in _SERIOUS
        for node in each["nodes"]
    ]
