"""Rollouts as the page shows them, in Chromium."""

import json

import pytest

from testing.server import serving, simulated_models
from tests.support.browser import browsing, needs_chromium
from tests.support.page import Page

pytestmark = needs_chromium
SIMULATED = {"base_ms": 1, "input_shape": [2], "outputs": 2}
CONFIG = "[promotion]\nreplay = 10\nsteps = [20, 100]\nstep_s = 600\n"


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        yield browser


def _add(models, version, **changed):
    hidden = models / "shop" / f".{version}"
    hidden.mkdir()
    (hidden / "simulated.json").write_text(json.dumps(SIMULATED | changed))
    hidden.rename(models / "shop" / str(version))


def test_shares_of_a_rollout_are_shown_and_why_a_version_is_refused(browser, tmp_path):
    """The reader need not know the percentages of basket.toml."""
    models = tmp_path / "models"
    simulated_models(models, shop=SIMULATED)
    (models / "shop" / "basket.toml").write_text(CONFIG)
    settings = {"model_dir": str(models), "capture_dir": str(tmp_path / "captured")}
    with serving("--threads=4", **settings) as server:
        page = Page(browser, server)
        _add(models, 2)
        page.wait_for("20 % of the traffic", "#models")
        page.wait_for("80 % of the traffic", "#models")
        _add(models, 3, outputs=1)
        page.wait_for("version 3: is not promoted: signature", "#models")
