"""The Grafana dashboard of deploy/, with the metrics of a real server."""

import importlib.util
import json
import re
import urllib.parse

import pytest

from testing.server import ROOT, serving, simulated_models, wait_until
from tests.support.prometheus import needs_prometheus, prometheus

SCRIPT = ROOT / "deploy" / "grafana" / "make_dashboard.py"
DASHBOARD = json.loads((SCRIPT.parent / "basket.json").read_text())
PANELS = DASHBOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
MODEL = {"base_ms": 1, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
VALUES = {"instance": ".*", "model": ".*", "__rate_interval": "10s"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = simulated_models(tmp_path_factory.mktemp("models"), m=MODEL)
    with serving(model_dir=folder) as started:
        assert started.predict([[1, 2]]).status == 200
        # Refused, so that /metrics has a reason.
        assert started.predict([[1, 2, 3]]).status == 400
        yield started


def test_the_dashboard_is_what_its_script_makes():
    """After a change of the script, run it: basket.json is not edited."""
    spec = importlib.util.spec_from_file_location("make_dashboard", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (SCRIPT.parent / "basket.json").read_text() == script.text()


def test_each_panel_has_a_unit_a_text_and_a_place():
    """No two panels overlap, and each says what it shows and in which unit."""
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS}
    assert len(places) == len(PANELS) == len({panel["title"] for panel in PANELS})
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"].endswith(".")
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"source", "instance", "model"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used - {"__rate_interval"} == variables


def test_each_metric_of_the_dashboard_exists(server):
    """/metrics of a served model has each series that a query or a variable names."""
    text = server.request("GET", "/metrics").body.decode()
    known = set()
    for name, kind in re.findall(r"^# TYPE (basket_\w+) (\w+)$", text, re.M):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        known |= {name + end for end in ends}
    named = set(re.findall(r"\bbasket_\w+", json.dumps(DASHBOARD)))
    assert len(named) > 12
    assert named <= known


@needs_prometheus
def test_each_query_has_values_in_a_real_prometheus(server, tmp_path):
    """A server with requests and a refusal gives each panel a number, but for GPUs."""

    def result(query):
        for name, value in VALUES.items():
            query = query.replace(f"${name}", value)
        return scraped.get(f"query?query={urllib.parse.quote(query)}")["result"]

    def missing():
        assert server.predict([[1, 2]]).status == 200
        assert server.predict([[1, 2, 3]]).status == 400
        found = [each for each in QUERIES if result(each)]
        return [each for each in QUERIES if each not in found and "gpu" not in each]

    with prometheus(tmp_path, server.port) as scraped:
        wait_until(lambda: not missing(), 60, missing)
