"""python -m bench.page_picture: take the pictures of docs/page.md.

Clients send pictures of digits to the demo model, one at first and then more.
"""

import argparse
import itertools
import tempfile
import threading
from pathlib import Path

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from bench.report import positive
from testing.browser import browsing, emulate
from testing.clients import in_parallel
from testing.server import ROOT, Server, serving

_WIDTH, _HEIGHT = 1280, 1640
_CLIENTS = 24
# Seconds that a client waits between an answer and its next request.
_THINK_S = 0.05
_WITHIN_S = 30


def take(out: Path, seconds: float) -> None:
    """Write two pictures after so many seconds of load.

    One is `out`, the other, in dark colors, has a name that ends in -dark.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "digits").symlink_to(ROOT / "models" / "digits")
        with serving("--threads=20", model_dir=folder) as server:
            _under_load(server, seconds, out)


def _under_load(server: Server, seconds: float, out: Path) -> None:
    stop = threading.Event()
    load = threading.Thread(target=_load, args=(server, seconds, stop))
    load.start()
    try:
        # The load is what is waited for.
        stop.wait(seconds)
        _take(server, out)
    finally:
        stop.set()
        load.join()


def _load(server: Server, seconds: float, stop: threading.Event) -> None:
    pictures = [file.read_bytes() for file in sorted(ROOT.glob("samples/*.png"))]

    def client(place: int) -> None:
        # One more client each time that this part of the load has passed.
        stop.wait(place * seconds / _CLIENTS)
        for picture in itertools.cycle(pictures):
            if stop.wait(_THINK_S):
                return
            server.request("POST", "/predict", picture, {"Content-Type": "image/png"})

    in_parallel(client, _CLIENTS)


def _take(server: Server, out: Path) -> None:
    with browsing() as browser:
        browser.get(f"http://127.0.0.1:{server.port}/")
        wait = WebDriverWait(browser, _WITHIN_S)
        wait.until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".chart path.line"))
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        # All of it has to be in view.
        emulate(browser, _WIDTH, _HEIGHT, "light")
        _draw_a_seven(browser)
        wait.until(lambda _: "seven" in browser.find_element(By.ID, "bars").text)
        for scheme, suffix in (("light", ""), ("dark", "-dark")):
            emulate(browser, _WIDTH, _HEIGHT, scheme)
            file = out.with_stem(out.stem + suffix)
            browser.save_screenshot(str(file))


def _draw_a_seven(browser: WebDriver) -> None:
    canvas = browser.find_element(By.ID, "drawing")
    stroke = ActionChains(browser, duration=20)
    stroke.move_to_element_with_offset(canvas, -60, -90).click_and_hold()
    stroke.move_by_offset(140, 0).move_by_offset(-80, 180).release().perform()


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m bench.page_picture")
    words = "a PNG; one in dark colors is written beside it"
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=words)
    parser.add_argument("--seconds", type=positive, default=120, help="of load before")
    options = parser.parse_args()
    take(options.out, options.seconds)


if __name__ == "__main__":
    main()
