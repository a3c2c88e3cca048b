"""axe-core's findings on the page and on /docs, in Chromium."""

import json

import pytest
from selenium.webdriver.common.keys import Keys

from testing.server import ROOT, serving
from tests.support.axe import findings, needs_axe
from tests.support.browser import browsing, emulate, needs_chromium
from tests.support.page import Page, add_digits

pytestmark = [needs_chromium, needs_axe]
SEVEN = ROOT / "samples" / "7.png"
SIMULATED = json.dumps({"base_ms": 1, "input_shape": [2], "outputs": 2})
KEYS = {"api_keys": "client-key", "admin_keys": "admin-key"}
SPLIT = "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 9\ncanary = 1\n"
LOOKS = [("light", 1280), ("dark", 360)]


def _with_others(folder, file_of_broken):
    """Write a model with a traffic split, and one that can't be loaded."""
    for name, file, text in (
        ("shop/1", "simulated.json", SIMULATED),
        ("shop/2", "simulated.json", SIMULATED),
        ("broken/1", file_of_broken, "no zip"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / file).write_text(text)
    (folder / "shop" / "basket.toml").write_text(SPLIT)
    return str(folder)


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    """The demo model, one with a traffic split, and one that can't be loaded."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "digits").symlink_to(ROOT / "models" / "digits")
    return _with_others(folder, "model.keras")


@pytest.fixture(name="simulated", scope="module")
def _simulated(tmp_path_factory):
    """The same without a framework, for pages on which nothing is sent."""
    folder = tmp_path_factory.mktemp("simulated")
    add_digits(folder)
    return _with_others(folder, "simulated.json")


def _server(models, settings):
    return serving("--threads=4", model_dir=models, ready=False, **settings)


@pytest.fixture(name="server", scope="module")
def _open_server(models):
    with _server(models, {}) as server:
        server.wait_until_loaded()
        yield server


@pytest.fixture(name="server_with_keys", scope="module")
def _server_with_keys(simulated):
    with _server(simulated, KEYS) as server:
        server.headers = {"Authorization": "Bearer admin-key"}
        server.wait_until_loaded()
        yield server


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        browser.set_script_timeout(60)
        yield browser


@pytest.fixture(name="look", params=LOOKS, ids=str, autouse=True)
def _look(request, browser):
    scheme, width = request.param
    emulate(browser, width, 900, scheme)


def _try(page, kind):
    """Send a request of this kind, and open all snippets."""
    page.choose("digits")
    page.send_as(kind)
    if kind == "picture":
        page.find("#picture").send_keys(str(SEVEN))
    elif kind == "drawing":
        page.find("#drawing").send_keys(Keys.ARROW_DOWN * 9)
    page.find("#send").send_keys(Keys.ENTER)
    page.wait_for("Answered: 200", "#try-status")
    for summary in page.all("#snippets summary"):
        summary.send_keys(Keys.ENTER)


@pytest.mark.parametrize("kind", ["json", "picture", "drawing"])
def test_page_without_keys_has_no_finding(browser, server, kind):
    """Models, charts, a request of each kind with its answer, errors and settings."""
    page = Page(browser, server).opened()
    _try(page, kind)
    page.find("#charts svg").send_keys(Keys.HOME)
    assert findings(browser) == []


def test_refused_request_has_no_finding(browser, server):
    """The reason of a refusal is shown, and a row in the table of errors."""
    page = Page(browser, server).opened()
    page.send_as("json")
    page.find("#json").clear()
    page.find("#json").send_keys("{")
    page.find("#send").send_keys(Keys.ENTER)
    page.wait_for("Refused: 400", "#try-status")
    page.wait(lambda: page.find("#errors").is_displayed())
    assert findings(browser) == []


@pytest.mark.parametrize("path", ["", "docs"])
def test_form_for_the_key_has_no_finding(browser, server_with_keys, path):
    """Before a key is given, and after a wrong one."""
    page = Page(browser, server_with_keys, path)
    page.enter_key("guess")
    page.wait_for("This server does not know that key.", "#key-problem")
    assert findings(browser) == []


@pytest.mark.parametrize("key", ["client-key", "admin-key"])
def test_page_with_a_key_has_no_finding(browser, server_with_keys, key):
    """Clients see less, and admins buttons and a form for the traffic split."""
    page = Page(browser, server_with_keys)
    page.enter_key(key)
    page.opened()
    assert bool(page.all(".traffic")) is (key == "admin-key")
    assert findings(browser) == []
    if key == "admin-key":
        page.find("[aria-label^='Unload ']").send_keys(Keys.ENTER)
        page.wait(lambda: page.find("#confirm").is_displayed())
        assert findings(browser) == []
        page.find("#confirm-no").send_keys(Keys.ENTER)
    page.find("#forget").send_keys(Keys.ENTER)
