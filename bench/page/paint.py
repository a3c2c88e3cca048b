"""When the page is painted under load."""

import statistics
import threading
from collections.abc import Iterator
from typing import Any

from selenium.webdriver.remote.webdriver import WebDriver

from bench.figures import Clients, Timing
from bench.load import Target, by_wrk
from bench.report import table

_PAINTS = 7
# Milliseconds since the navigation: first paint, and when the state is shown.
_PAINTED = """
    const done = arguments[0];
    const look = () => {
        const shown = document.querySelector('#charts svg');
        if (!shown || !shown.checkVisibility()) return requestAnimationFrame(look);
        const [paint] = performance.getEntriesByName('first-contentful-paint');
        if (!paint) return requestAnimationFrame(look);
        done([paint.startTime, performance.now()]);
    };
    look();
"""
_SIZES = """
    const files = performance.getEntriesByType('resource')
        .filter(each => !each.name.includes('/state'));
    const [page] = performance.getEntriesByType('navigation');
    return [page, ...files].reduce((sum, each) => sum + each.decodedBodySize, 0);
"""


def painted(
    browser: WebDriver, url: str, target: Target, clients: int
) -> Iterator[str]:
    """Open the page under load, each time with an empty cache; yield a table."""
    done = threading.Event()
    load = threading.Thread(target=_load_until, args=(target, clients, done))
    load.start()
    try:
        # Until wrk has its connections.
        done.wait(2)
        found = [_opened(browser, url) for _ in range(_PAINTS)]
    finally:
        done.set()
        load.join()
    paints, shown = zip(*found, strict=True)
    kib = browser.execute_script(_SIZES) / 1024
    rows = [
        (name, f"{statistics.median(times):.0f}", f"{max(times):.0f}")
        for name, times in (("first paint", paints), ("charts are there", shown))
    ]
    heading = (f"{_PAINTS} times under load", "median (ms)", "slowest (ms)")
    yield from table(heading, rows)
    yield ""
    yield f"All files of the page: {kib:.0f} KiB."


def _load_until(target: Target, clients: int, done: threading.Event) -> None:
    while not done.is_set():
        by_wrk(target, Clients(clients), Timing(1, 5))


def _opened(browser: WebDriver, url: str) -> Any:
    browser.get("about:blank")
    browser.execute_cdp_cmd("Network.clearBrowserCache", {})
    browser.get(url)
    return browser.execute_async_script(_PAINTED)
