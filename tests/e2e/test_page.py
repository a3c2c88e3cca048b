"""The page and /docs in Chromium, against running servers."""

import base64
import contextlib
import json
import re
import threading

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from testing.server import ROOT, serving, simulated_models
from tests.support.browser import browsing, emulate, needs_chromium
from tests.support.page import Page, add_digits
from tests.support.user_code import add_service, serving_code

pytestmark = needs_chromium
SEVEN = ROOT / "samples" / "7.png"
# A name that would be an element, if it were taken for HTML.
HOSTILE = "<b>till"
SERVICE = """
EXAMPLE = "what a nice day"


def predict(model, batch):
    return [text.upper() for text in batch]
"""
SIMULATED = {"base_ms": 1, "input_shape": [2], "outputs": 2}
KEYS = {"api_keys": "client-key", "admin_keys": "admin-key"}
FOCUSABLE = """
    const wanted = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
    return [...document.querySelectorAll(wanted)].filter(
        each => each.checkVisibility() && !each.disabled
            && (each.type !== 'radio' || each.checked));
"""
DROP = """
    const [text, name] = arguments;
    const bytes = Uint8Array.from(atob(text), each => each.charCodeAt());
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name, {type: 'image/png'}));
    document.getElementById('with-picture').dispatchEvent(
        new DragEvent('drop', {dataTransfer, bubbles: true, cancelable: true}));
"""
# The color of the text and of its background, as 0 (black) to 255.
BRIGHTNESS = """
    const style = getComputedStyle(document.body);
    return [style.color, style.backgroundColor].map(
        each => Math.max(...each.match(/[0-9]+/g).slice(0, 3).map(Number)));
"""


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    """The demo model, one of two numbers, and one that can't be loaded."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "digits").symlink_to(ROOT / "models" / "digits")
    for name, file, text in (
        (HOSTILE, "simulated.json", json.dumps(SIMULATED)),
        ("broken", "model.keras", "no zip"),
    ):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / file).write_text(text)
    return str(folder)


@pytest.fixture(name="simulated", scope="module")
def _simulated(tmp_path_factory):
    """Models of the same names without a framework, whose answers do not matter."""
    folder = tmp_path_factory.mktemp("simulated")
    add_digits(folder)
    return simulated_models(folder, **{HOSTILE: SIMULATED, "broken": {"outputs": 0}})


@contextlib.contextmanager
def _serving(models, **settings):
    """Serve what can be loaded: with a broken model the server is never ready."""
    with serving("--threads=4", model_dir=models, ready=False, **settings) as server:
        server.headers = {"Authorization": "Bearer admin-key"}
        server.wait_until_loaded()
        yield server


@pytest.fixture(name="server", scope="module")
def _server(models):
    with _serving(models) as server:
        yield server


@pytest.fixture(name="server_with_keys", scope="module")
def _server_with_keys(simulated):
    with _serving(simulated, **KEYS) as server:
        yield server


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        yield browser


def test_fresh_server_opens_without_an_error(browser, tmp_path):
    """The page says that all is well and what to do, and asks no other host."""
    add_digits(tmp_path)
    with serving("--threads=4", model_dir=str(tmp_path)) as server:
        page = Page(browser, server).opened()
        assert page.text("#server") == "1 model ready"
        assert (
            "No requests yet: try the model below, or curl -F file=@picture.png"
            in page.text()
        )
        assert "simulated" in page.text(".card")
        rows = page.text("#settings").splitlines()
        assert f"BASKET_MODEL_DIR {tmp_path} environment all" in rows
        assert "BASKET_MAX_BATCH_SIZE 64 default all" in rows
        assert page.problems() == []


def test_server_without_models_says_what_to_do(browser, tmp_path):
    """The page names the place of a model, which then appears by itself."""
    with serving("--threads=4", model_dir=str(tmp_path), ready=False) as server:
        server.wait_until_loaded()
        page = Page(browser, server)
        page.wait_for("No models. Put one into the folder of models", "#models")
        assert page.text("#server") == "No models"
        assert page.text("#no-requests") == "No requests yet."
        assert not page.find("#send").is_enabled()
        (tmp_path / "till" / "1").mkdir(parents=True)
        file = tmp_path / "till" / "1" / "simulated.json"
        file.write_text(json.dumps(SIMULATED))
        page.wait_for("till", "#models")
        page.wait(lambda: page.find("#send").is_enabled())
        assert """or curl -d '{"instances":[[0,0]]}' """ in page.text("#no-requests")


def test_broken_model_is_shown_with_its_reason(browser, server):
    """The line at the top and the model's card have the error of the log."""
    page = Page(browser, server).opened()
    reason = "model.keras is no whole .keras file"
    assert page.text("#server").startswith("2 models ready. broken: version 1: ")
    assert reason in page.text("#server")
    (digits,) = [card for card in page.all(".card") if "digits" in card.text]
    assert "tensorflow_keras" in digits.text
    (card,) = [card for card in page.all(".card") if "broken" in card.text]
    assert card.text.count(reason) == 1
    assert "failed" in card.text


def test_names_are_text_and_never_elements(browser, server):
    """A model whose name looks like HTML is shown by its name."""
    page = Page(browser, server).opened()
    assert HOSTILE in page.text("#models")
    assert page.all("#models b") == []


def _draw_a_seven(page):
    """Draw with the pointer, and wait for the answer."""
    page.choose("digits")
    canvas = page.find("#drawing")
    script = "arguments[0].scrollIntoView({block: 'center'})"
    page.browser.execute_script(script, canvas)
    strokes = ActionChains(page.browser, duration=20)
    strokes.move_to_element_with_offset(canvas, -60, -90).click_and_hold()
    strokes.move_by_offset(70, 0).move_by_offset(70, 0)
    for _ in range(6):
        strokes.move_by_offset(-13, 30)
    strokes.release().perform()
    page.wait_for("seven", "#bars")
    assert page.text("#bars").startswith("seven")


def test_drawn_seven_is_answered_as_seven(browser, server):
    """A digit is drawn with the pointer and sent at the end of the stroke."""
    page = Page(browser, server).opened()
    page.choose("digits")
    assert page.text("#try-status") == "Nothing sent yet. Draw a digit."
    _draw_a_seven(page)
    facts = page.text("#try-facts")
    assert "Version 1 answered." in facts
    assert "It ran in a batch of 1 row." in facts
    assert "in the model" in facts


def test_drawn_seven_is_answered_by_a_shared_model(browser, tmp_path):
    """Two workers decode drawings for one model."""
    (tmp_path / "digits").symlink_to(ROOT / "models" / "digits")
    settings = {"model_dir": str(tmp_path), "model_process": "shared"}
    with serving("--threads=4", "--workers=2", **settings) as server:
        page = Page(browser, server).opened()
        _draw_a_seven(page)
        page.wait_for("model process", "#processes")
        assert page.problems() == []


def test_digit_drawn_with_the_keyboard_is_answered(browser, server):
    """Arrow keys draw, and Enter on the button sends the drawing."""
    page = Page(browser, server).opened()
    page.choose("digits")
    canvas, keys = page.find("#drawing"), ActionChains(browser)
    browser.execute_script("arguments[0].focus()", canvas)
    keys.key_down(Keys.SHIFT).send_keys(Keys.ARROW_UP * 8).key_up(Keys.SHIFT)
    keys.send_keys(Keys.ARROW_DOWN * 16).perform()
    page.find("#send").send_keys(Keys.ENTER)
    page.wait(lambda: page.text("#bars").startswith("one"))


def test_picked_picture_is_answered(browser, server):
    """A PNG from the file dialog is sent at once."""
    page = Page(browser, server).opened()
    page.choose("digits")
    page.send_as("picture")
    first = "Nothing sent yet. Drop a picture, or pick one."
    assert page.text("#try-status") == first
    page.find("#picture").send_keys(str(SEVEN))
    page.wait(lambda: page.text("#bars").startswith("seven"))
    assert page.problems() == []


def test_dropped_picture_is_answered(browser, server):
    """A PNG that is dropped is sent at once, and shown."""
    page = Page(browser, server).opened()
    page.choose("digits")
    page.send_as("picture")
    text = base64.b64encode(SEVEN.read_bytes()).decode()
    browser.execute_script(DROP, text, SEVEN.name)
    page.wait(lambda: page.text("#bars").startswith("seven"))
    assert page.find("#preview").is_displayed()


def test_json_example_fits_the_model(browser, server):
    """The example is answered as it is, and an edited one as it is edited."""
    page = Page(browser, server).opened()
    page.choose(HOSTILE)
    first = "Nothing sent yet. Send the example, or edit it first."
    assert page.text("#try-status") == first
    page.find("#send").click()
    page.wait_for('{"predictions":[[0.0,0.0]]}', "#answer")
    page.find("#json").clear()
    page.find("#json").send_keys('{"instances": [[0.25, 0.75], [1, 2]]}')
    Select(page.find("#try-version")).select_by_value("1")
    page.find("#send").click()
    page.wait_for('{"predictions":[[0.25,0.75],[1.0,2.0]]}', "#answer")
    # They add up to 1, so that they are scores.
    assert page.text("#bars").splitlines() == ["class 1 75.0 %", "class 0 25.0 %"]


def test_example_of_a_service_is_in_the_editor(browser, tmp_path):
    """EXAMPLE of service.py is sent as it is, and answered."""
    add_service(tmp_path, "shout", SERVICE)
    with serving_code(tmp_path) as server:
        page = Page(browser, server).opened()
        body = page.find("#json").get_attribute("value")
        assert json.loads(body) == {"instances": ["what a nice day"]}
        page.find("#send").click()
        page.wait_for('{"predictions":["WHAT A NICE DAY"]}', "#answer")
        assert page.problems() == []


def test_refused_request_shows_the_error(browser, server):
    """The status and the server's text are shown, and no bars.

    So are the error in the table, and the reason in the chart of refusals.
    """
    page = Page(browser, server).opened()
    page.choose(HOSTILE)
    page.find("#json").clear()
    page.find("#json").send_keys('{"instances": [[1]]}')
    page.find("#send").click()
    page.wait_for("Refused: 400", "#try-status")
    assert "expected 2 values, given 1" in page.text("#try-status")
    assert page.text("#bars") == ""
    error = f"{HOSTILE} 400 instances[0]: expected 2 values, given 1;"
    page.wait_for(error, "#errors")
    page.wait(lambda: "bad_input" in page.chart("Refused, all models"))


def test_charts_move_under_load(browser, server):
    """Requests appear in the charts within seconds, and each chart has its unit."""
    page = Page(browser, server).opened()
    Select(page.find("#chart-model")).select_by_value("digits")
    stop = threading.Event()
    body = SEVEN.with_suffix(".json").read_bytes()

    def load():
        while not stop.is_set():
            server.request("POST", "/predict?model=digits", body)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for title, value in (
            ("Requests by status", "200"),
            ("Response time", "p50"),
            ("Where the time goes", "infer"),
            ("Rows per batch", "mean"),
            ("Engine busy", "digits"),
        ):
            above_0 = re.compile(f"{value} (0\\.0*)?[1-9]")
            page.wait(lambda: above_0.search(page.chart(title)))  # noqa: B023
        page.wait(lambda: page.all(".chart path.area[d*=M]"))
        page.wait(lambda: "ceiling 64" in page.chart("Rows per batch"))
        assert "ceiling 64" in page.texts(".legend .limit")
    finally:
        stop.set()
        thread.join()
    units = page.texts(".chart:not([hidden]) .unit")
    wanted = ["requests/s", "ms", "ms", "rows", "rows", "% of the time"]
    assert units == [*wanted, "requests/s", "MiB"]
    assert page.find("#no-requests").text == ""


def test_refused_requests_are_in_no_stage(browser, server):
    """The mean over models counts the answered requests of each."""
    page = Page(browser, server).opened()
    stages = dict.fromkeys(("decode", "queue", "encode"), 0)
    models = {
        "busy": {"status": {"200": 5, "503": 90}, "stages_ms": {**stages, "infer": 40}},
        "calm": {"status": {"200": 15}, "stages_ms": {**stages, "infer": 20}},
    }
    page.show_samples([*models], [{"t": 10, "models": models, "gpus": []}])
    assert "infer 25," in page.chart("Where the time goes")
    browser.get("about:blank")


def _memory_chart(page):
    """Return the last chart that a machine without a GPU has."""
    return page.all(".chart:not([hidden])")[-1]


def test_history_survives_a_reload(browser, server):
    """The samples come from the server, not from the page."""
    page = Page(browser, server).opened()
    page.wait(lambda: page.chart("Memory of all processes"))
    page.browser.refresh()
    page.opened()
    count = browser.execute_async_script(
        "fetch('page/state').then(reply => reply.json())"
        ".then(state => arguments[0](state.samples.length))"
    )
    # In one call, as the page replaces the line.
    (line,) = browser.execute_script(
        "return [...arguments[0].querySelectorAll('path.line')]"
        ".map(each => each.getAttribute('d'))",
        _memory_chart(page),
    )
    assert line.count("L") >= min(count - 2, 3)


def test_keyboard_reads_a_second_of_a_chart(browser, server):
    """The arrow keys show a second's values, and Escape hides them."""
    page = Page(browser, server).opened()
    chart = _memory_chart(page)
    page.wait(lambda: chart.find_elements(By.CSS_SELECTOR, "path.line[d*=M]"))
    svg, tip = (chart.find_element(By.CSS_SELECTOR, each) for each in ("svg", ".tip"))
    svg.send_keys(Keys.ARROW_LEFT)
    page.wait(lambda: "memory" in tip.text)
    assert tip.text.endswith("(MiB)")
    svg.send_keys(Keys.ESCAPE)
    page.wait(lambda: tip.text == "")


def test_ticks_are_round_and_reach_the_values(browser, server):
    """The y axis has a few round numbers up to at least the largest value."""
    Page(browser, server).opened()
    script = "import('/page/chart.js').then(c => arguments[1](c.ticks(arguments[0])))"
    for most, expected in (
        (0, [0, 0.25, 0.5, 0.75, 1]),
        (100, [0, 25, 50, 75, 100]),
        (101, [0, 50, 100, 150]),
        (0.07, [0, 0.02, 0.04, 0.06, 0.08]),
        (812, [0, 250, 500, 750, 1000]),
    ):
        assert browser.execute_async_script(script, most) == pytest.approx(expected)


def test_silent_server_is_named_and_asked_again(browser, server):
    """The page reports the silence, retries at longer intervals, and recovers."""
    page = Page(browser, server).opened()
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.enable", {})
    try:
        browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions", {"offline": True, **offline}
        )
        page.wait_for("The server does not answer. This page keeps trying.", "#away")
        assert page.text("#server") == "No answer"
    finally:
        browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions", {"offline": False, **offline}
        )
        browser.execute_cdp_cmd("Network.disable", {})
    page.wait(lambda: page.text("#away") == "")
    assert "models ready" in page.text("#server")
    # One line for each request that failed.
    assert len(page.problems()) <= 5


def test_nothing_is_shown_before_a_key_is_given(browser, server_with_keys):
    """A stranger sees the form alone, and a wrong key is refused."""
    page = Page(browser, server_with_keys)
    page.wait(lambda: page.find("#key").is_displayed())
    assert not page.find("#all").is_displayed()
    page.enter_key("guess")
    page.wait_for("This server does not know that key.", "#key-problem")
    assert not page.find("#all").is_displayed()
    assert "digits" not in page.browser.page_source


def test_client_key_sees_models_and_no_settings(browser, server_with_keys):
    """A client may look and try, and sees no settings, errors or buttons."""
    page = Page(browser, server_with_keys)
    page.enter_key("client-key")
    page.opened()
    assert not page.find("#server-parts").is_displayed()
    assert "BASKET_MODEL_DIR" not in page.browser.page_source
    assert page.all(".card button") == []
    page.choose(HOSTILE)
    page.find("#send").click()
    page.wait_for("Answered: 200", "#try-status")
    assert "client-key" not in page.text()
    assert browser.get_cookies() == []
    # A reload of the tab keeps the key, until it is forgotten.
    browser.refresh()
    page.opened()
    page.find("#forget").click()
    page.wait(lambda: page.find("#key").is_displayed())
    assert not page.find("#all").is_displayed()
    browser.refresh()
    page.wait(lambda: page.find("#key").is_displayed())


def test_admin_key_unloads_and_loads_a_model(browser, server_with_keys):
    """An admin sees settings and errors, and the buttons change the server."""
    page = Page(browser, server_with_keys)
    page.enter_key("admin-key")
    page.opened()
    assert "BASKET_MODEL_DIR" in page.text("#settings")
    page.find(f"[aria-label='Unload {HOSTILE}']").click()
    page.wait_for(f"Unload {HOSTILE}?", "#confirm")
    page.find("#confirm-yes").click()
    page.wait_for(f"{HOSTILE}: unloaded", "#changed")
    page.wait_for(f"{HOSTILE}: is not served", "#server")
    page.find(f"[aria-label='Load {HOSTILE}']").click()
    page.wait_for(f"{HOSTILE}: loaded", "#changed")
    page.wait_for("2 models ready", "#server")
    page.find("#forget").click()


@pytest.mark.parametrize("refuse", ["Cancel", "Enter", "Escape"])
def test_unload_asks_once_more(browser, server_with_keys, refuse):
    """Cancel, on which the focus is, and Escape leave the model as it is."""
    page = Page(browser, server_with_keys)
    page.enter_key("admin-key")
    page.opened()
    unload = page.find(f"[aria-label='Unload {HOSTILE}']")
    unload.send_keys(Keys.ENTER)
    page.wait_for(f"Unload {HOSTILE}?", "#confirm")
    focused = browser.switch_to.active_element
    assert focused.text == "Cancel"
    # Nothing behind the question can be reached.
    focused.send_keys(Keys.TAB, Keys.TAB, Keys.TAB)
    inside = (
        "return document.getElementById('confirm').contains(document.activeElement)"
    )
    assert browser.execute_script(
        f"{inside} || document.activeElement === document.body"
    )
    if refuse == "Cancel":
        page.find("#confirm-no").click()
    else:
        focused.send_keys(Keys.ENTER if refuse == "Enter" else Keys.ESCAPE)
    page.wait(lambda: not page.find("#confirm").is_displayed())
    assert not page.find("#changed").is_displayed()
    page.wait_for("2 models ready", "#server")
    page.find("#forget").click()


def test_admin_moves_the_traffic_split(browser, tmp_path):
    """The next requests follow, to whichever worker, and the card shows the shares."""
    for version in (1, 2):
        (tmp_path / "shop" / str(version)).mkdir(parents=True)
        file = tmp_path / "shop" / str(version) / "simulated.json"
        file.write_text(json.dumps(SIMULATED))
    config = "[labels]\nstable = 1\ncanary = 2\n[traffic]\nstable = 1\n"
    (tmp_path / "shop" / "basket.toml").write_text(config)

    def versions():
        replies = [
            server.request("POST", "/predict", b'{"instances": [[1, 2]]}')
            for _ in range(8)
        ]
        return {reply.headers["X-Model-Version"] for reply in replies}

    options = {"model_dir": str(tmp_path), **KEYS}
    with serving("--threads=4", "--workers=2", **options) as server:
        server.headers = {"Authorization": "Bearer admin-key"}
        page = Page(browser, server)
        page.enter_key("admin-key")
        page.opened()
        page.wait_for("stable: 100 % of the traffic", "#models")
        assert versions() == {"1"}
        form = page.find("[aria-label='Traffic of shop']")
        fields = form.find_elements(By.TAG_NAME, "input")
        for field, weight in zip(fields, ("0", "3"), strict=True):
            field.clear()
            field.send_keys(weight)
        form.find_element(By.TAG_NAME, "button").click()
        page.wait_for("shop: traffic moved", "#changed")
        page.wait_for("canary: 100 % of the traffic", "#models")
        page.wait(lambda: versions() == {"2"})
        page.find("#forget").click()


def test_key_can_be_given_where_only_admins_have_one(browser, simulated):
    """Without API keys everyone sees models; an admin key shows the settings, too."""
    with _serving(simulated, admin_keys="admin-key") as server:
        page = Page(browser, server).opened()
        assert not page.find("#server-parts").is_displayed()
        page.find("#give").click()
        page.find("#key").send_keys("guess" + Keys.ENTER)
        page.wait_for("No admin key", "#rights")
        assert not page.find("#server-parts").is_displayed()
        page.find("#forget").click()
        page.wait(lambda: page.find("#give").is_displayed())
        page.find("#give").click()
        page.find("#key").send_keys("admin-key" + Keys.ENTER)
        page.wait_for("BASKET_MODEL_DIR", "#settings")
        assert page.text("#rights") == "Admin key"


def _tabbed_through(browser, first, most):
    """Return the elements that Tab reaches from the first on, in order, each once."""
    browser.execute_script("arguments[0].focus()", first)
    found = [first]
    for _ in range(most):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        element = browser.switch_to.active_element
        if element in found or element.tag_name == "body":
            break
        found.append(element)
    return found


@pytest.mark.parametrize("kind", ["json", "picture", "drawing"])
def test_everything_is_reached_by_tab(browser, server, kind):
    """Tab reaches each control, chart and table that is shown."""
    page = Page(browser, server).opened()
    page.choose("digits")
    page.send_as(kind)
    wanted = browser.execute_script(FOCUSABLE)
    assert len(wanted) > 15
    reached = _tabbed_through(browser, wanted[0], 2 * len(wanted))
    missing = [each.get_attribute("outerHTML")[:90] for each in wanted]
    for each in reached:
        text = each.get_attribute("outerHTML")[:90]
        if text in missing:
            missing.remove(text)
    assert missing == []
    assert page.problems() == []


def test_controls_have_names_for_screen_readers(browser, server):
    """All in the accessibility tree that takes the focus has a name, and none is 0."""
    Page(browser, server).opened()
    browser.execute_cdp_cmd("Accessibility.enable", {})
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    browser.execute_cdp_cmd("Accessibility.disable", {})
    focusable = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
        for each in node.get("properties", ())
        if each["name"] == "focusable" and each["value"]["value"]
    ]
    assert len(focusable) > 15
    assert [role for role, name in focusable if not name.strip()] == []
    headings = {
        node["name"]["value"]
        for node in tree
        if not node["ignored"] and node["role"]["value"] == "heading"
    }
    assert {"Basket", "Models", "Try a model", "Settings"} <= headings


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_needs_no_scrolling_sideways(browser, server, scheme):
    """At 360 pixels nothing is wider than the screen, in both color schemes."""
    try:
        emulate(browser, 360, 800, scheme)
        page = Page(browser, server).opened()
        for kind in ("json", "picture", "drawing"):
            page.choose("digits")
            page.send_as(kind)
            wide, shown = browser.execute_script(
                "return [document.documentElement.scrollWidth, innerWidth]"
            )
            assert wide <= shown == 360
        text, back = browser.execute_script(BRIGHTNESS)
        assert (text > back) == (scheme == "dark")
        assert abs(text - back) > 150
    finally:
        emulate(browser, 1280, 1400, "light")


def test_api_page_sends_a_request(browser, server):
    """/docs opens without an error under its policy, and a request is answered."""
    page = Page(browser, server, "docs")
    page.wait(lambda: page.all("#operations-operations-healthz"))
    # Another server would be refused by the page's policy.
    choices = page.all(".servers option")
    assert [choice.get_attribute("value") for choice in choices] == ["/"]
    page.find("#operations-operations-healthz button").click()
    page.wait(lambda: page.all(".try-out__btn"))
    page.find(".try-out__btn").click()
    page.find(".execute").click()
    page.wait(lambda: page.all(".live-responses-table"))
    page.wait_for('"status": "alive"', ".live-responses-table")
    assert page.problems() == []


def test_api_page_asks_for_the_key(browser, server_with_keys):
    """With keys /docs shows the description only to those who have one."""
    page = Page(browser, server_with_keys, "docs")
    page.enter_key("client-key")
    WebDriverWait(browser, 20).until(lambda _: page.all(".opblock"))
    page.find("#forget").click()
    page.wait(lambda: page.find("#key").is_displayed())
    assert page.all(".opblock") == []
