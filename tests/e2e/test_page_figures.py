"""What the charts of the page say, beside /metrics, with one worker and several."""

import math
import os
import re
import signal
from collections import Counter
from itertools import pairwise

import pytest

from testing.clients import Client, in_parallel
from testing.server import metric_sum, serving, simulated_models
from tests.support.browser import browsing, needs_chromium
from tests.support.page import Page, Second

pytestmark = needs_chromium
STEADY = {"base_ms": 20, "per_row_ms": 0, "input_shape": [4], "outputs": 4}
ROW = [1.0, 2.0, 3.0, 4.0]
SET_UPS = {
    "one worker": (1, {}),
    "two workers": (2, {}),
    "a shared model": (2, {"model_process": "shared"}),
}
CLIENTS = 8


@pytest.fixture(name="browser", scope="module")
def _browser():
    with browsing() as browser:
        yield browser


@pytest.fixture(name="models")
def _models(tmp_path):
    return simulated_models(tmp_path, steady=STEADY)


def _samples(server):
    return server.request("GET", "/page/state").json()["samples"]


def _ask(server, good, bad):
    """Have clients send so many rows, and bad ones, on connections of their own."""

    def work(place):
        for row, count, status in ((ROW, good, 200), ([1.0], bad, 400)):
            for _ in range(count // CLIENTS):
                with Client(server.port) as client:
                    client.send([row])
                    assert client.receive().status == status

    in_parallel(work, CLIENTS)


def _wait_until_idle(server):
    """Wait until all that was answered is in samples, and one more came after it."""
    seen = _samples(server)[-1]["n"]

    def is_idle():
        last = _samples(server)[-1]
        return last["n"] > seen + 1 and not last["models"]["steady"]["status"]

    server.wait_until(is_idle, 60)


def _buckets(server, name):
    """Return the observations up to each bound of a histogram, and 0 up to 0."""
    text = server.request("GET", "/metrics").body.decode()
    found = Counter({0.0: 0})
    for le, count in re.findall(rf'^{name}_bucket{{.*le="(.+?)".*}} (.+)$', text, re.M):
        found[float(le)] += float(count)
    return found


def _sum(seconds, spans, *labels):
    """Return the sum of a rate over seconds: of each known one, times its length."""
    return sum(
        second.values.get(label, 0) * spans.get(second.time, 0)
        for second in seconds
        for label in labels
    )


def _shown_times(browser, samples):
    """Return the time that charts show for each sample."""
    return browser.execute_script(
        "return arguments[0].map("
        "each => new Date(each * 1000).toLocaleTimeString('en-GB'))",
        [each["t"] for each in samples],
    )


def _spans(browser, samples):
    """Return how long each sample's second was, by the time that charts show."""
    times = [each["t"] for each in samples]
    lengths = [1.0, *(after - before for before, after in pairwise(times))]
    return dict(zip(_shown_times(browser, samples), lengths, strict=True))


def _check_sums(page, server, requests, engines):
    """Compare the sums over all seconds with the counters."""
    spans = _spans(page.browser, _samples(server))

    def agrees(value, series):
        assert value == pytest.approx(metric_sum(server, series), rel=0.05)

    assert _sum(requests, spans, "200") == pytest.approx(240, rel=0.05)
    assert _sum(requests, spans, "400") == pytest.approx(80, rel=0.05)
    agrees(_sum(requests, spans, "200", "400"), "basket_requests_total")
    refused = page.seconds("Refused, all models")
    agrees(_sum(refused, spans, "bad_input"), "basket_rejected_total")
    rates = {each.time: each.values.get("200", 0) for each in requests}
    answered = {at: rate * spans[at] for at, rate in rates.items()}
    stages = page.seconds("Where the time goes")
    all_ms = _sum(stages, answered, "decode", "queue", "infer", "encode")
    agrees(all_ms / 1000, "basket_stage_seconds_total")
    fewest = most = 0
    means = (math.inf, math.inf)
    for each in page.seconds("Rows per batch"):
        # Rows may be answered in the second after their batch, of which the chart has
        # none if it was the only one.
        means = means[1], each.values.get("mean", means[1])
        known = [mean for mean in means if mean < math.inf] or [1]
        fewest += answered.get(each.time, 0) / max(known)
        most += answered.get(each.time, 0) / min(known)
    batches = metric_sum(server, "basket_batch_rows_count")
    assert 0.95 * fewest <= batches <= 1.05 * most
    busy_s = _sum(page.seconds("Engine busy"), spans, "steady") / 100 * engines
    agrees(busy_s, "basket_infer_seconds_sum")


def _check_percentiles(page, server):
    """Compare response times with the histogram, and each second's with its sample."""
    shown = page.seconds("Response time")
    buckets = _buckets(server, "basket_request_seconds")
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found_s = [each.values[name] / 1000 for each in shown if name in each.values]
        rank = share * buckets[math.inf]
        # That of all requests lies between the seconds' least and most, but for what
        # rounding to three digits takes.
        least_s, most_s = 0.99 * min(found_s), 1.01 * max(found_s)
        assert max(n for le, n in buckets.items() if le < least_s) <= rank
        assert min(n for le, n in buckets.items() if le >= most_s) >= rank
    samples = _samples(server)
    found = dict(zip(_shown_times(page.browser, samples), samples, strict=True))
    checked = 0
    for each in shown:
        if each.values and each.time in found:
            model = found[each.time]["models"]["steady"]
            expected = {name: model[f"{name}_ms"] for name in ("p50", "p95", "p99")}
            assert each.values == pytest.approx(expected, rel=0.05)
            # A row takes 20 ms, and bad ones almost nothing.
            assert expected["p99"] > 20 or "200" not in model["status"]
            checked += 1
    assert checked


@pytest.mark.parametrize("set_up", SET_UPS)
def test_charts_agree_with_metrics(browser, models, set_up):
    """Requests, refusals, stages, batches and the engine are within 5 % of /metrics.

    The percentiles are in its buckets. The history is the same after a reload,
    whichever worker answers: all are killed in turn.
    """
    workers, settings = SET_UPS[set_up]
    args = ("--threads=8", f"--workers={workers}")
    with serving(*args, model_dir=models, **settings) as server:
        server.wait_until(lambda: _samples(server), 60)
        _ask(server, 240, 80)
        _wait_until_idle(server)
        page = Page(browser, server).opened()
        requests = page.seconds("Requests by status")
        _check_sums(page, server, requests, engines=1 if settings else workers)
        _check_percentiles(page, server)
        _kill_in_turn(server)
        page = Page(browser, server).opened()
        kept = {each.time: each.values for each in page.seconds("Requests by status")}
        assert [kept[each.time] for each in requests] == [
            each.values for each in requests
        ]
        rows = page.find("#processes").text
        assert rows.count("model process") == ("model_process" in settings)
        page.wait(lambda: page.find("#processes").text.count("worker") == workers)
        restarts = f"Restarts of workers and model processes: {workers}"
        assert restarts in page.text("#restarts")
        browser.get("about:blank")


def _kill_in_turn(server):
    """Kill each web worker; wait until another one has taken its place."""
    holders = {each["pid"] for each in _processes(server) if each["kind"] == "worker"}
    for count, pid in enumerate(holders, 1):
        os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: _restarts(server) == count, 30)  # noqa: B023
        server.wait_until_ready(0)


def _state(server):
    return server.request("GET", "/page/state").json()


def _processes(server):
    return _state(server)["processes"]


def _restarts(server):
    try:
        return _state(server)["restarts"]
    except OSError:  # the worker that was killed
        return None


def _sample(at, gpus):
    return {"t": at, "models": {}, "rejected": {}, "memory_mib": 1, "gpus": gpus}


def test_memory_of_each_gpu_has_a_chart(browser, models):
    """A line for each GPU, with its name, and the memory of the largest as a limit."""
    cards = [
        {"number": number, "name": "card", "memory_mib": 8000, "used_mib": used}
        for number, used in ((0, 4000), (1, 30))
    ]
    with serving("--threads=4", model_dir=models) as server:
        page = Page(browser, server).opened()
        # With a sample, whose list of GPUs is empty.
        page.wait(lambda: "\u2013" not in page.chart("Memory of all processes"))
        assert "Memory of GPUs" not in page.text("#charts")
        page.show_samples(["m"], [_sample(10, cards), _sample(11, cards)])
        expected = "Memory of GPUs, MiB, now: 0: card 4,000, 1: card 30, all 8,000"
        assert page.chart("Memory of GPUs").startswith(expected)
        browser.get("about:blank")


def test_seconds_of_a_chart_are_read():
    """A second has a time, and values with separators; a dash is none."""
    second = Second("10:00:01: 200 1,234.5, p50 \u2013, m 0.07 (requests/s)")
    assert second.time == "10:00:01"
    assert second.values == {"200": 1234.5, "m": 0.07}
