"""The alert rules of deploy/ in Debian's real Prometheus."""

import json
import re

import pytest

from testing.server import ROOT, serving, simulated_models, wait_until
from tests.support import documents
from tests.support.prometheus import (
    RULES,
    needs_prometheus,
    prometheus,
    promtool,
    rules,
)

MODEL = {"base_ms": 1, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
UP = 'up{job="basket",instance="a"}'
PROBE = 'probe_success{job="basket-probes",instance="http://a/readyz"}'
BUCKET = 'basket_request_seconds_bucket{{instance="a",model="m",version="1",le="{}"}}'


def _of_model(name, **labels):
    named = {"instance": "a", "model": "m", **labels}
    return (
        f"basket_{name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in named.items())}}}"
    )


def _rejected(reason):
    return f'basket_rejected_total{{instance="a",reason="{reason}"}}'


ALL, LOADING, END = (
    _of_model("model_versions", state=state)
    for state in ("AVAILABLE", "LOADING", "END")
)
REQUESTS = _of_model("requests_total", version="1", status="200")
WAITING, LIMIT = (
    _of_model("queue_rows", version="1"),
    _of_model("queue_limit_rows", version="1"),
)
PROBLEMS = _of_model("model_problems")
OF_MODEL = {"instance": "a", "model": "m"}
# Alert, values of its series in each minute, and the labels that it has after 20
# minutes; None: it does not fire.
SCENARIOS = [
    ("BasketDown", {UP: "1x5 0x20"}, {"instance": "a", "job": "basket"}),
    (
        "BasketDown",
        {UP: "1x30", PROBE: "0x30"},
        {"instance": "http://a/readyz", "job": "basket-probes"},
    ),
    ("BasketDown", {UP: "1x19 0x0", PROBE: "1x30"}, None),
    ("BasketModelNotReady", {END: "1x30", LOADING: "1x30"}, OF_MODEL),
    ("BasketModelNotReady", {PROBLEMS: "1x30"}, OF_MODEL),
    ("BasketModelNotReady", {PROBLEMS: "0x30"}, None),
    ("BasketModelNotReady", {END: "1x30", ALL: "1x30", PROBLEMS: "1x30"}, None),
    ("BasketModelNotReady", {LOADING: "1x17 _x9", ALL: "_x17 1x9"}, None),
    ("BasketModelHasProblem", {PROBLEMS: "0x10 1x20"}, OF_MODEL),
    ("BasketModelHasProblem", {PROBLEMS: "0x16 1x20"}, None),
    (
        "BasketModelFails",
        {_rejected("model_failed"): "0+1x30"},
        {"instance": "a", "reason": "model_failed"},
    ),
    (
        "BasketModelFails",
        {_rejected("bad_input"): "0+9x30", _rejected("model_failed"): "7x30"},
        None,
    ),
    (
        "BasketOverloaded",
        {_rejected("queue_full"): "0+2x30", REQUESTS: "0+100x30"},
        {"instance": "a"},
    ),
    (
        "BasketOverloaded",
        {_rejected("late"): "0+1x30", REQUESTS: "0+200x30"},
        None,
    ),
    ("BasketQueueGrows", {WAITING: "600x30", LIMIT: "1024x30"}, OF_MODEL),
    ("BasketQueueGrows", {WAITING: "500x30", LIMIT: "1024x30"}, None),
    (
        "BasketSlow",
        {
            BUCKET.format("1.0"): "0+90x30",
            BUCKET.format("2.0"): "0+100x30",
            BUCKET.format("+Inf"): "0+100x30",
        },
        OF_MODEL,
    ),
    (
        "BasketSlow",
        {BUCKET.format("1.0"): "0+100x30", BUCKET.format("+Inf"): "0+100x30"},
        None,
    ),
]


def _scenario(alert, series, labels):
    """Return a test of promtool."""
    (rule,) = [each for each in rules() if each["alert"] == alert]
    fires = {
        "exp_labels": {**(labels or {}), **rule["labels"]},
        "exp_annotations": rule["annotations"],
    }
    return {
        "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "20m",
                "alertname": alert,
                "exp_alerts": [] if labels is None else [fires],
            }
        ],
    }


@needs_prometheus
def test_promtool_accepts_the_rules():
    """`promtool check rules` finds no error, and as many rules as the file has."""
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(rules())} rules found" in checked.stdout


@needs_prometheus
@pytest.mark.parametrize(("alert", "series", "labels"), SCENARIOS)
def test_alert_fires_only_in_its_scenario(tmp_path, alert, series, labels):
    """`promtool test rules` finds the alert firing, or silent, after 20 minutes."""
    scenario = tmp_path / "scenario.yml"
    tests = [_scenario(alert, series, labels)]
    scenario.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    ran = promtool("test", "rules", scenario)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_a_scenario_that_fires_and_one_that_does_not():
    """No alert is without its two scenarios."""
    fires = {alert for alert, _, labels in SCENARIOS if labels is not None}
    silent = {alert for alert, _, labels in SCENARIOS if labels is None}
    assert fires == silent == {each["alert"] for each in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_has_texts_and_a_runbook_that_exists(rule):
    """Summary and description are sentences; the runbook is the alert's heading."""
    texts = rule["annotations"]
    assert sorted(texts) == ["description", "runbook_url", "summary"]
    assert texts["description"].endswith(".")
    assert not re.search(r"\{\{", texts["summary"] + texts["description"])
    page, _, anchor = texts["runbook_url"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in documents.anchors(ROOT / page)
    assert rule["labels"]["severity"] in ("critical", "warning")


@needs_prometheus
def test_a_real_prometheus_fires_for_a_model_that_is_not_ready(tmp_path):
    """The server whose model can't be loaded has alerts, the other one none."""
    good = simulated_models(tmp_path / "good", m=MODEL)
    bad = simulated_models(tmp_path / "bad", broken={"outputs": 0})
    scraping = tmp_path / "prometheus"
    scraping.mkdir()
    with (
        serving(model_dir=good) as ready,
        serving(model_dir=bad, ready=False) as broken,
        prometheus(scraping, ready.port, broken.port) as scraped,
    ):

        def fires(alert, port):
            return any(
                (each["alertname"], each["instance"]) == (alert, f"127.0.0.1:{port}")
                for each in scraped.firing()
            )

        wait_until(lambda: fires("BasketModelNotReady", broken.port), 120)
        wait_until(lambda: fires("BasketModelHasProblem", broken.port), 60)
        assert {each["model"] for each in scraped.firing()} == {"broken"}
        assert ready.predict([[1, 2]]).status == 200
        assert ready.stop() == 0
        wait_until(lambda: fires("BasketDown", ready.port), 60)
