"""The comparison with other servers, on a simulated device that takes no time."""

import dataclasses
import io
import shutil
import sys

import numpy as np
import pytest

from bench import processes
from bench.loadtest.progress import Progress
from bench.peers import drive, plots, tables
from bench.peers.cells import Campaign, summed_up
from bench.peers.loads import LOADS, Clients
from bench.peers.models import prepare
from bench.peers.plan import Plan, Timing
from bench.peers.run import Run
from bench.peers.set_ups import SET_UPS, Setting, SetUp, with_before

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        shutil.which("wrk") is None, reason="Debian's package wrk is wanted"
    ),
]
FAST = {"base_ms": 1, "per_row_ms": 0, "input_shape": [64], "outputs": 10}


def load(name, *clients):
    return dataclasses.replace(LOADS[name], simulation=FAST, clients=clients)


def ends_at_once(prepared, setting):
    command = [sys.executable, "-c", "raise SystemExit('no such port')"]
    return processes.running(command, {}, prepared.models, lambda: False)


def test_a_small_run_ends_in_a_report(tmp_path):
    """One server is measured under wrk; another ends, and is a line in the report."""
    broken = SetUp("mosec", "mosec", ("growth",), ends_at_once)
    set_ups = [SET_UPS["gunicorn"], broken]
    plan = Plan([load("growth", Clients(4), Clients(8))], set_ups, 1, seconds=1)
    campaign = Campaign("python -m bench.peers", "2030-01-01", {}, 1, 1)
    said = io.StringIO()
    Run(plan, campaign, tmp_path, Progress(plan.cells(), said)).measure()
    mine, theirs = campaign.cells[:2], campaign.cells[2:]
    assert all(cell.sound and cell.rate and cell.asked for cell in mine)
    assert all(1 <= cell.batch_rows <= 8 for cell in mine)
    problem = "ended with 1; its log says: no such port"
    assert [cell.problem for cell in theirs] == [problem] * 2
    assert f"[4/4] growth, mosec, 8 clients, round 1: {problem}" in said.getvalue()
    report = tables.markdown(campaign)
    assert f"* growth, mosec: {problem}" in report
    assert "growth: requests that failed | at most 0 | 0.000 | yes" in report
    plots.draw(summed_up(campaign.cells), tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_the_commit_before_is_served_from_its_own_tree(tmp_path):
    """A tree without wsgi.py can't be served, whatever the checkout has."""
    prepared = prepare(load("policy"), tmp_path / "policy")
    _, before = with_before([SET_UPS["gunicorn"]], "abc1234", tmp_path)
    (setting,) = before.settings
    with (
        pytest.raises(processes.DidNotStart, match="No module named 'wsgi'"),
        before.serve(prepared, setting),
    ):
        pass


@pytest.mark.parametrize("shift", [0, 1], ids=["its own", "another's"])
def test_an_answer_for_another_is_seen(shift, tmp_path):
    """An answer is held against the one that the model has for its own request."""
    prepared = prepare(load("policy"), tmp_path / "policy")
    expected = np.roll(prepared.expected, shift, axis=0)
    prepared = dataclasses.replace(prepared, expected=expected)
    with SET_UPS["gunicorn"].serve(prepared, Setting()) as server:
        few = server, Clients(3)
        for seen in (
            drive.by_wrk(*few, Timing(1, 1)),
            drive.by_users(*few, Timing(0.1, 0.4)),
        ):
            assert seen["rate"] > 0
            assert seen["errors"] == seen["not_2xx"] == 0
            assert seen["asked"] > 0
            assert seen["wrong"] == (seen["asked"] if shift else 0)
