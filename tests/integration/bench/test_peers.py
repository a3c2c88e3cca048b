"""The comparison with other servers, on a simulated device that takes 1 ms."""

import contextlib
import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bench import load
from bench.figures import Clients, Timing
from bench.peers import environments, tables
from bench.peers.loads import LOADS, prepare
from bench.peers.run import Comparison, Plan
from bench.peers.servers import SET_UPS, Setting, SetUp, with_before
from testing.server import running

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        shutil.which("wrk") is None, reason="Debian's package wrk is wanted"
    ),
]
FAST = {"base_ms": 1, "per_row_ms": 0, "input_shape": [64], "outputs": 10}


def fast(name, *clients):
    """Return a load on a device that takes 1 ms."""
    return dataclasses.replace(LOADS[name], simulation=FAST, clients=clients)


@contextlib.contextmanager
def ends_at_once(prepared, setting):
    command = [sys.executable, "-c", "raise SystemExit('no such port')"]
    with running(command, 0, ready=False, check_exit=False) as server:
        server.wait_until(lambda: False, 30)
        yield


def test_problem_of_one_server_is_a_line_in_the_report(tmp_path, capsys):
    """One server is measured under wrk, another ends and is a line in the report."""
    broken = SetUp("mosec", ("growth",), ends_at_once)
    set_ups = [SET_UPS["gunicorn"], broken]
    plan = Plan([fast("growth", Clients(4), Clients(8))], set_ups, 1, seconds=1)
    campaign = Comparison("`python -m bench.peers`", plan.cells())
    campaign.measure_all(plan, tmp_path)
    mine, theirs = campaign.cells[:2], campaign.cells[2:]
    for cell in mine:
        assert cell.sound
        assert cell.seen.rate
        assert cell.seen.checked
        # The client that checks answers sends, too.
        assert 1 <= cell.seen.batch_rows <= 8 + 1
    problem = "the server ended: no such port"
    assert [cell.problem for cell in theirs] == [problem] * 2
    assert (
        f"[4/4] growth, mosec, 8 clients, round 1: {problem}" in capsys.readouterr().out
    )
    report = tables.markdown(campaign)
    assert f"* growth, mosec: {problem}" in report
    assert "| Basket, Gunicorn | - | 8 clients |" in report


def test_commit_before_is_served_from_its_own_tree(tmp_path):
    """A tree without wsgi.py cannot be served, although the checkout has one."""
    prepared = prepare(fast("policy"), tmp_path / "policy")
    _, before = with_before([SET_UPS["gunicorn"]], "abc1234", tmp_path)
    (setting,) = before.settings
    with (
        pytest.raises(AssertionError, match="No module named 'wsgi'"),
        before.serve(prepared, setting),
    ):
        pass


@pytest.mark.parametrize("shift", [0, 1], ids=["its own", "another's"])
def test_answer_to_another_request_is_counted_as_wrong(shift, tmp_path):
    """Every checked answer is compared with the model's answer to its request."""
    prepared = prepare(fast("policy"), tmp_path / "policy")
    expected = np.roll(prepared.expected, shift, axis=0)
    prepared = dataclasses.replace(prepared, expected=expected)
    with SET_UPS["gunicorn"].serve(prepared, Setting()) as target:
        for seen in (
            load.by_wrk(target, Clients(3), Timing(1, 1)),
            load.by_users(target, Clients(3), Timing(0.1, 0.4)),
        ):
            assert seen.rate > 0
            assert seen.errors == seen.not_2xx == 0
            assert seen.checked > 0
            assert seen.wrong == (seen.checked if shift else 0)


def test_peer_that_cannot_be_installed_leaves_no_environment(monkeypatch, tmp_path):
    """A requirement that pip cannot get raises with its error."""
    monkeypatch.setattr(environments, "_FOLDER", tmp_path)
    monkeypatch.setattr(environments, "_REQUIREMENTS", tmp_path)
    requirements = tmp_path / "broken.txt"
    requirements.write_text("no-such-package @ file:///nowhere/at/all.whl\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        environments.python_of("broken")
    assert "ERROR" in raised.value.stderr
    assert not (tmp_path / "broken" / "done").exists()
