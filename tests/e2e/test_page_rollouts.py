"""Rollouts as the page shows them, in Chromium."""

import json

import pytest

from testing.server import serving, simulated_models
from tests.support.browser import browsing, needs_chromium
from tests.support.page import Page

pytestmark = needs_chromium
SIMULATED = {"base_ms": 1, "input_shape": [2], "outputs": 2}
CONFIG = """
[promotion]
replay = 10
steps = [20, 100]
step_s = 600
[capture]
share = 1
"""
REVERSED = """
def predict(model, batch):
    return {name: rows[:, ::-1] for name, rows in model(batch).items()}
"""


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        yield browser


def _add(models, version, service="", **changed):
    hidden = models / "shop" / f".{version}"
    hidden.mkdir()
    if service:
        (hidden / "service.py").write_text(service)
    (hidden / "simulated.json").write_text(json.dumps(SIMULATED | changed))
    hidden.rename(models / "shop" / str(version))


def test_shares_of_a_rollout_are_shown_and_why_a_version_is_refused(browser, tmp_path):
    """A refused version is shown with the request whose row differs most."""
    models = tmp_path / "models"
    simulated_models(models, shop=SIMULATED)
    (models / "shop" / "basket.toml").write_text(CONFIG)
    settings = {"model_dir": str(models), "capture_dir": str(tmp_path / "captured")}
    with serving("--threads=4", user_code="on", **settings) as server:
        page = Page(browser, server)
        _add(models, 2)
        page.wait_for("20 % of the traffic", "#models")
        page.wait_for("80 % of the traffic", "#models")
        written = 'basket_captured_total{model="shop",result="written"}'
        body, headers = b'{"instances": [[0.25, 0.75]]}', {"X-Request-Id": "till-7"}
        assert server.request("POST", "/predict", body, headers).status == 200
        server.wait_until(lambda: server.metric(written) == 1, 30)
        _add(models, 3, REVERSED)
        differs = "most different: row 0, output by 0.5 (request till-7)"
        page.wait_for("version 3: not promoted: agrees in 0 of 1 rows", "#models")
        page.wait_for(differs, "#models")
        _add(models, 4, outputs=1)
        page.wait_for("version 4: not promoted: signature", "#models")


def test_admin_sends_a_version_back_and_promotes_the_next_one(browser, tmp_path):
    """Both buttons ask once more, and are there during a rollout alone."""
    models = tmp_path / "models"
    simulated_models(models, shop=SIMULATED)
    (models / "shop" / "basket.toml").write_text(CONFIG)
    settings = {"model_dir": str(models), "capture_dir": str(tmp_path / "captured")}
    keys = {"api_keys": "client-key", "admin_keys": "admin-key"}
    with serving("--threads=4", ready=False, **keys, **settings) as server:
        server.headers = {"Authorization": "Bearer admin-key"}
        server.wait_until_loaded()
        page = Page(browser, server)
        page.enter_key("admin-key")
        page.opened()
        buttons = "button[aria-label$=' of shop']"
        assert page.all(buttons) == []

        def press(label, version):
            page.wait_for("20 % of the traffic", "#models")
            page.find(f"[aria-label='{label} version {version} of shop']").click()
            page.wait_for(f"{label} version {version} of shop?", "#confirm")
            page.find("#confirm-yes").click()

        _add(models, 2)
        press("Send back", 2)
        page.wait_for("shop: version 2 is sent back", "#changed")
        page.wait_for("version 2: not promoted: it was sent back by hand", "#models")
        _add(models, 3)
        press("Promote", 3)
        page.wait_for("shop: version 3 takes over", "#changed")
        share = 'basket_traffic_share{model="shop",version="3"}'
        server.wait_until(lambda: server.metric(share) == 1, 30)
        page.wait(lambda: page.all(buttons) == [])
