"""What the page costs a server: open under full load, and idle, by its samples."""

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from bench.figures import Seen, Timing
from bench.load import Target, batches_of, by_wrk
from bench.page.paint import painted
from bench.peers.loads import LOADS, prepare
from bench.report import table
from testing.browser import browsing
from testing.processes import cpu_s, family
from testing.server import Server, metric_sum, serving

_LOAD = LOADS["tiny"]
_WITHIN_S = 30
_WARM_UP_S = 1.0
_STATES = 300
# Seconds without a request.
_IDLE_S = 30.0
_RESAMPLES = 10_000
# The part of resamples that the interval leaves out at each end.
_TAIL = 0.025
# Asks as the page does, and draws nothing.
_POLL = """
    let since = 0;
    setInterval(async () => {
        const reply = await fetch(`/page/state?since=${since}`);
        since = (await reply.json()).samples.at(-1)?.n ?? since;
    }, 1000);
"""


@dataclass(frozen=True)
class _Bench:
    """A server under test, and a browser on the same machine."""

    server: Server
    browser: WebDriver
    target: Target

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.server.port}/{path}"

    @contextlib.contextmanager
    def nobody(self) -> Iterator[None]:
        """Have the browser show an empty page."""
        self.browser.get("about:blank")
        yield

    @contextlib.contextmanager
    def page(self) -> Iterator[None]:
        """Have the page open."""
        self.browser.get(self.url())
        _wait_for_charts(self.browser)
        yield

    @contextlib.contextmanager
    def browser_asks(self) -> Iterator[None]:
        """Have the browser ask as the page does, without anything to be seen."""
        self.browser.get(self.url("page/style.css"))
        self.browser.execute_script(_POLL)
        yield

    @contextlib.contextmanager
    def program_asks(self) -> Iterator[None]:
        """Have a thread ask as the page does."""
        self.browser.get("about:blank")
        done = threading.Event()
        thread = threading.Thread(target=self._ask, args=(done,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _ask(self, done: threading.Event) -> None:
        since = 0
        while not done.wait(1):
            reply = self.server.request("GET", f"/page/state?since={since}")
            since = max([since, *(each["n"] for each in reply.json()["samples"])])


@dataclass(frozen=True)
class _Turn:
    """What clients saw, and what server and browser took.

    `server_us` is processor time for a request, in microseconds, and `browser` the
    share of a core.
    """

    seen: Seen
    server_us: float
    browser: float


_Way = tuple[str, Callable[[_Bench], AbstractContextManager[None]]]
_NOBODY: _Way = ("nobody looks", _Bench.nobody)
_WAYS: tuple[_Way, ...] = (
    ("a program asks as the page does", _Bench.program_asks),
    ("a browser asks, and draws nothing", _Bench.browser_asks),
    ("the page is open", _Bench.page),
)
# What each turn is compared with, and the page.
_PAGE_ALONE = (_NOBODY, _WAYS[-1])


def measured(rounds: int, seconds: float, page_alone: bool) -> Iterator[str]:
    """Measure, and yield the lines of two tables.

    Rounds go forth and back through the ways, so that a machine that becomes slower
    or faster favors none.
    """
    ways = _PAGE_ALONE if page_alone else (_NOBODY, *_WAYS)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        prepared = prepare(_LOAD, Path(folder) / _LOAD.name)
        models = str(prepared.models)
        server = stack.enter_context(serving("--threads=64", model_dir=models))
        browser = stack.enter_context(browsing())
        target = Target(server.port, prepared, lambda: batches_of(server))
        bench = _Bench(server, browser, target)
        yield _cost_of_idling(bench)
        yield ""
        turns: dict[str, list[_Turn]] = {name: [] for name, _ in ways}
        for number in range(rounds):
            for name, way in ways[:: -1 if number % 2 else 1]:
                with way(bench):
                    turns[name].append(_turn(bench, seconds))
        yield from _throughput(turns)
        yield ""
        yield from painted(browser, bench.url(), target, _LOAD.clients[0].count)
        yield _cost_of_a_state(bench)


def _turn(bench: _Bench, seconds: float) -> _Turn:
    answered = metric_sum(bench.server, "basket_requests_total")
    before, began_at = _cpu_s(bench), time.monotonic()
    seen = by_wrk(bench.target, _LOAD.clients[0], Timing(_WARM_UP_S, seconds))
    took_s = time.monotonic() - began_at
    server_s, browser_s = map(float.__sub__, _cpu_s(bench), before)
    answered = metric_sum(bench.server, "basket_requests_total") - answered
    return _Turn(seen, 1e6 * server_s / answered, browser_s / took_s)


def _cpu_s(bench: _Bench) -> tuple[float, float]:
    """Return the processor time that server and browser have taken."""
    driver = bench.browser.service.process  # type: ignore[attr-defined]
    server, browser = (
        cpu_s(family(each.pid)) for each in (bench.server.process, driver)
    )
    return server, browser


def _throughput(turns: dict[str, list[_Turn]]) -> list[str]:
    heading = (
        *("", "requests/s", "of nobody's", "95 % interval", "each round"),
        "server, us a request",
        *("of nobody's", "browser, cores", "p99 (ms)", "failed", "wrong"),
    )
    nobody = turns[_NOBODY[0]]
    rows = []
    for name, found in turns.items():
        shares = [a.seen.rate / b.seen.rate for a, b in zip(found, nobody, strict=True)]
        costs = [a.server_us / b.server_us for a, b in zip(found, nobody, strict=True)]
        median = statistics.median
        rows.append(
            (
                name,
                f"{median(each.seen.rate for each in found):.0f}",
                f"{median(shares):.3f}",
                "{:.3f} to {:.3f}".format(*_interval(shares)),
                " ".join(f"{share:.2f}" for share in shares),
                f"{median(each.server_us for each in found):.0f}",
                f"{median(costs):.3f}",
                f"{median(each.browser for each in found):.2f}",
                f"{1000 * median(each.seen.p99_s for each in found):.1f}",
                sum(each.seen.errors + each.seen.not_2xx for each in found),
                f"{sum(each.seen.wrong for each in found)} of "
                f"{sum(each.seen.checked for each in found)}",
            )
        )
    return table(heading, rows)


def _interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median of paired rounds, by the bootstrap."""
    random = np.random.default_rng(0)
    drawn = random.choice(np.array(shares), (_RESAMPLES, len(shares)))
    low, high = np.quantile(np.median(drawn, axis=1), (_TAIL, 1 - _TAIL))
    return float(low), float(high)


def _cost_of_idling(bench: _Bench) -> str:
    """Ask nothing for a while; the sampler is a part of what the server does."""
    with bench.nobody():
        before, _ = _cpu_s(bench)
        # The time is what is measured.
        threading.Event().wait(_IDLE_S)
        after, _ = _cpu_s(bench)
    share = (after - before) / _IDLE_S
    return (
        f"Idle, the server takes {share:.2%} of a core, with the sampler and all else."
    )


def _cost_of_a_state(bench: _Bench) -> str:
    """Ask as the page does, without load, many times."""
    bench.browser.get("about:blank")
    since = bench.server.request("GET", "/page/state").json()["samples"][-1]["n"]
    before, _ = _cpu_s(bench)
    for _ in range(_STATES):
        bench.server.request("GET", f"/page/state?since={since}")
    after, _ = _cpu_s(bench)
    each_ms = 1000 * (after - before) / _STATES
    return (
        f"The server takes {each_ms:.1f} ms of processor time for each second's news."
    )


def _wait_for_charts(browser: WebDriver) -> None:
    WebDriverWait(browser, _WITHIN_S).until(
        lambda _: browser.find_elements(By.CSS_SELECTOR, ".chart path.line")
    )
