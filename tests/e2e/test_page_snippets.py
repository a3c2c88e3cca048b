"""The requests that the page offers to copy are run as they stand."""

import json
import shutil
import subprocess
from urllib.parse import quote

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from testing.server import ROOT, serving
from tests.support.browser import browsing, needs_chromium
from tests.support.page import Page

pytestmark = needs_chromium
SEVEN = ROOT / "samples" / "7.png"
ECHO = json.dumps({"base_ms": 1, "input_shape": [2], "outputs": 2})
# A name that would end a string or be an element, if it were not quoted.
SHOP = "it's <b>"


@pytest.fixture(name="shop", scope="module")
def _shop(tmp_path_factory):
    """Two versions of a model that returns its rows."""
    folder = tmp_path_factory.mktemp("shop")
    for version in ("1", "2"):
        (folder / SHOP / version).mkdir(parents=True)
        (folder / SHOP / version / "simulated.json").write_text(ECHO)
    # Without a label only the newest version would be served.
    (folder / SHOP / "basket.toml").write_text("[labels]\nold = 1\nnew = 2\n")
    return folder


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory, shop):
    """The same model beside the demo model."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "digits").symlink_to(ROOT / "models" / "digits")
    (folder / SHOP).symlink_to(shop / SHOP)
    return str(folder)


@pytest.fixture(name="server", scope="module")
def _server(models):
    with serving("--threads=4", model_dir=models) as server:
        yield server


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        yield browser


@pytest.fixture(name="page")
def _page(browser, server):
    yield Page(browser, server).opened()
    browser.get("about:blank")


@pytest.fixture(name="folder")
def _folder(tmp_path, monkeypatch):
    """A folder with the files that snippets name, in which they are run."""
    shutil.copy(SEVEN, tmp_path / "picture.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _texts(page):
    """Return the snippets that the page shows, by their titles."""
    found = {}
    for each in page.all("#snippets details"):
        if each.get_attribute("open") is None:
            each.find_element(By.CSS_SELECTOR, "summary").send_keys(Keys.ENTER)
        title = each.find_element(By.CSS_SELECTOR, "summary").text
        found[title] = each.find_element(By.CSS_SELECTOR, "pre").text
    return found


def _send(page):
    """Send the request on the page, and return its answer."""
    page.find("#send").click()
    page.wait_for("Answered: 200", "#try-status")
    return json.loads(page.text("#answer"))


def _run_curl(command):
    # As somebody would paste it.
    done = subprocess.run(
        ["bash", "-c", command], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def _run_python(code):
    """Return what the code prints: values, as they are."""
    printed = []
    exec(code, {"print": lambda *values: printed.append(values)})
    return printed


def _write(page, body):
    page.find("#json").clear()
    page.find("#json").send_keys(json.dumps(body))


def _check_json(page):
    """Run all three; their answers are that of the page."""
    answer, texts = _send(page), _texts(page)
    assert _run_curl(texts["curl"]) == answer
    assert _run_python(texts["Python, requests"]) == [(200, answer)]
    (((array,),)) = _run_python(texts["Python, tritonclient"])
    np.testing.assert_allclose(array, answer["predictions"], rtol=1e-6)
    return answer


def test_rows_are_sent_by_all_three(page, folder):
    """curl, requests and tritonclient answer as the page does."""
    page.choose(SHOP)
    _write(page, {"instances": [[1, 2], [0.5, -3]]})
    assert _check_json(page) == {"predictions": [[1.0, 2.0], [0.5, -3.0]]}


@pytest.mark.parametrize("version", ["1", "2"])
def test_chosen_version_answers_all_three(page, folder, server, version):
    """The page sends to it, and so do the snippets."""
    page.choose(SHOP)
    Select(page.find("#try-version")).select_by_value(version)
    _check_json(page)
    assert f"Version {version} answered." in page.text("#try-facts")
    path = f"/versions/{version}:predict"
    for text in list(_texts(page).values())[:2]:
        assert path in text
    assert f'model_version="{version}"' in _texts(page)["Python, tritonclient"]


def test_body_that_is_too_long_for_a_command_is_a_file(page, folder):
    """Curl and requests read it, and tritonclient's code says what to put in."""
    page.choose("digits")
    page.send_as("json")
    body = {"instances": np.full((9, 8, 8, 1), 0.5).tolist()}
    page.browser.execute_script(
        "const field = document.getElementById('json'); field.value = arguments[0];"
        "field.dispatchEvent(new Event('input'));",
        json.dumps(body),
    )
    (folder / "body.json").write_text(json.dumps(body))
    answer, texts = _send(page), _texts(page)
    assert "@body.json" in texts["curl"]
    assert _run_curl(texts["curl"]) == answer
    assert _run_python(texts["Python, requests"]) == [(200, answer)]
    assert "# Put your values" in texts["Python, tritonclient"]
    (((array,),)) = _run_python(texts["Python, tritonclient"])
    assert array.shape == (1, 10)


@pytest.mark.parametrize("version", ["", "1"])
def test_picture_is_sent_by_curl_and_requests(page, folder, version):
    """The page shows the same classes, or of a chosen version the same scores."""
    page.choose("digits")
    Select(page.find("#try-version")).select_by_value(version)
    page.send_as("picture")
    page.find("#picture").send_keys(str(SEVEN))
    page.wait_for("Answered: 200", "#try-status")
    answer, texts = json.loads(page.text("#answer")), _texts(page)
    assert _run_curl(texts["curl"]) == answer
    assert _run_python(texts["Python, requests"]) == [(200, answer)]
    assert "# Put your values" in texts["Python, tritonclient"]
    assert len(_run_python(texts["Python, tritonclient"])) == 1


def test_key_is_read_from_a_variable(browser, shop, folder, monkeypatch):
    """No text contains the key; with the variable set, each one is answered."""
    monkeypatch.setenv("BASKET_KEY", "client-key")
    settings = {"model_dir": str(shop), "api_keys": "client-key"}
    with serving("--threads=4", **settings) as server:
        page = Page(browser, server)
        page.enter_key("client-key")
        page.opened()
        page.choose(SHOP)
        _check_json(page)
        assert not any("client-key" in each for each in _texts(page).values())
        page.find("#forget").click()
        browser.get("about:blank")


def test_page_of_the_api_has_an_example_of_each_model(browser, server):
    """/docs sends each, with the name of its model, and gets an answer."""
    page = Page(browser, server, "docs")
    operation = "#operations-predict-predict"
    page.wait(lambda: page.all(operation))
    page.find(f"{operation} button").click()
    page.wait(lambda: page.all(f"{operation} .try-out__btn"))
    page.find(f"{operation} .try-out__btn").click()
    model = f"{operation} [data-param-name=model]"
    body = f"{operation} .opblock-section-request-body"
    names = [
        each.get_attribute("value")
        for each in page.all(f"{body} .examples-select option")
    ]
    assert {SHOP, "digits"} <= set(names)
    # The page begins with the same model in both places.
    assert page.find(f"{model} input").get_attribute("value") == names[0]
    for name in names:
        for part in (model, body):
            Select(page.find(f"{part} .examples-select select")).select_by_value(name)
        page.find(f"{operation} .execute").click()
        page.wait_for(f"?model={quote(name)}", f"{operation} .request-url")
        page.wait_for("predictions", f"{operation} .live-responses-table")
        page.find(f"{operation} .btn-clear").click()
        page.wait(lambda: not page.all(f"{operation} .live-responses-table"))
