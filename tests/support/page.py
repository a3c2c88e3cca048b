"""What a test does on the page in Chromium."""

import re
import shutil
from contextlib import suppress

from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from testing.server import ROOT, simulated_models, wait_until

# Press the right arrow in a chart until it says nothing new; return all that it said.
STEP_THROUGH = """
    const [svg] = arguments, tip = svg.parentElement.querySelector('p'), found = [];
    while (!found.includes(tip.innerText)) {
        found.push(tip.innerText);
        svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
    }
    return found;
"""

# Return the texts of all elements that are shown.
TEXTS = """
    const shown = [...document.querySelectorAll(arguments[0])]
        .filter(each => each.checkVisibility());
    return shown.map(each => each.textContent);
"""

# Draw the charts of samples that are made up, in place of the server's.
SHOW_SAMPLES = """
    const [names, samples, done] = arguments;
    import('/page/charts.js').then(({Charts}) => {
        document.getElementById('charts').replaceChildren();
        new Charts().show({models: names.map(name => ({name}))}, samples);
        done(true);
    });
"""


def add_digits(models):
    """Write a simulated model that takes pictures as the demo model does."""
    simulated_models(
        models, digits={"base_ms": 1, "input_shape": [8, 8, 1], "outputs": 10}
    )
    for file in ("basket.toml", "classes.json"):
        shutil.copy(ROOT / "models" / "digits" / file, models / "digits" / file)


class Second:
    """What a chart says about one second: a time, and a value by label.

    A value that is not there is not in `values`.
    """

    def __init__(self, text):
        self.time, _, rest = text.partition(": ")
        pairs = re.findall(r"([^,]+?) ([0-9.,]+)(?=, | \()", rest)
        self.values = {
            label.strip(" ,"): float(value.replace(",", "")) for label, value in pairs
        }


class Page:
    """What a test does on a page."""

    def __init__(self, browser, server, path=""):
        self.browser = browser
        # No line of an earlier test.
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{server.port}/{path}")

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector="body"):
        return self.find(selector).text

    def texts(self, selector):
        """Return what these elements say at one moment: the page replaces some."""
        return self.browser.execute_script(TEXTS, selector)

    def wait(self, condition, within_s=60):
        def is_true():
            # The page has replaced what the condition has found, or is yet to show it.
            with suppress(StaleElementReferenceException, NoSuchElementException):
                return condition()
            return False

        wait_until(is_true, within_s, self.text)

    def wait_for(self, text, selector="body"):
        self.wait(lambda: text in self.text(selector))

    def opened(self):
        """Wait until the state of the server is shown."""
        self.wait_for("ready", "#server")
        self.wait(lambda: self.find("#charts svg").is_displayed())
        return self

    def choose(self, name):
        Select(self.find("#try-model")).select_by_value(name)

    def send_as(self, kind):
        self.find(f"[name=kind][value={kind}]").click()

    def enter_key(self, key):
        # No key of an earlier test.
        self.browser.execute_script("sessionStorage.clear()")
        self.browser.refresh()
        self.wait(lambda: self.find("#key").is_displayed())
        self.find("#key").send_keys(key + Keys.ENTER)

    def chart(self, title):
        """Return the text alternative of a chart: its current values."""
        shown = self.all("#charts svg")
        labels = [each.get_attribute("aria-label") for each in shown]
        (label,) = [each for each in labels if each.startswith(f"{title},")]
        return label

    def show_samples(self, names, samples):
        """Show the charts of these models, with samples that the server never had."""
        self.browser.execute_async_script(SHOW_SAMPLES, names, samples)

    def seconds(self, title):
        """Return what each second of a chart says, the oldest first."""
        svg = next(
            each
            for each in self.all("#charts svg")
            if each.get_attribute("aria-label").startswith(f"{title},")
        )
        # By the keys that a user has, but all in one call, as there are many seconds.
        svg.send_keys(Keys.HOME)
        found = self.browser.execute_script(STEP_THROUGH, svg)
        svg.send_keys(Keys.ESCAPE)
        return [Second(each) for each in found]

    def problems(self):
        """Return the errors of the browser's console, and requests to other hosts."""
        log = [each["message"] for each in self.browser.get_log("browser")]
        loaded = self.browser.execute_script(
            "return performance.getEntries().filter(each => each.name.includes('://')"
            " && !each.name.startsWith(location.origin)).map(each => each.name)"
        )
        return log + loaded
