"""The report and the plan of the comparison with other servers."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bench import load
from bench.figures import Cell, Clients, Seen, Timing, medians
from bench.load import Target
from bench.peers import __main__ as command
from bench.peers import tables
from bench.peers.loads import LOADS, prepare
from bench.peers.run import Comparison, Plan
from bench.peers.servers import BASKET, SET_UPS, Setting, with_before
from bench.prepared import JPEG, Prepared


def cell(load="tiny", server="mosec", setting="", rate=100.0, round=1, **more):
    clients = more.pop("clients", Clients(32))
    problem = more.pop("problem", None)
    seen = Seen(rate=rate, **more)
    return Cell(load, server, setting, clients, round, seen, problem)


def campaign(cells, header=""):
    return Comparison(header, len(cells), cells)


def test_server_that_never_ran_keeps_its_problem():
    """A server without figures is one row with its problem, without a ratio."""
    rows = medians([cell(rate=0.0, problem="no internet"), cell(server=BASKET)])
    assert [row.problem for row in rows] == ["no internet", None]


def test_report_begins_with_problems():
    """Problems and wrong answers stand above the tables, ratios are those of rates."""
    cells = [
        cell(server=BASKET, rate=150.0, wrong=1, checked=20),
        cell(server="mosec", setting="waits 1 ms", rate=100.0),
        cell(server="LitServe", rate=0.0, problem="litserve can't be installed"),
    ]
    made = campaign(cells, "`python -m bench.peers` on 2030-01-01")
    report = tables.markdown(made)
    head, _, rest = report.partition("## tiny")
    assert "* tiny, LitServe: litserve can't be installed" in head
    assert "0 without an answer, 0 not 2xx, 1 wrong of 20 checked" in head
    assert "| Basket, Gunicorn | - | 32 clients | 150 |" in rest
    assert "| 0 | 1 of 20 | 1.50 |" in rest
    assert "LitServe" not in rest
    assert "`python -m bench.peers` on 2030-01-01" in head
    (first, *_) = json.loads(json.dumps(asdict(made)))["cells"]
    assert first["seen"]["rate"] == 150.0


def test_answer_of_another_request_is_wrong(tmp_path):
    """An answer to another request is wrong, as is one that is not JSON."""
    prepared = prepare(LOADS["policy"], tmp_path / "policy")
    row = json.loads(prepared.bodies[3].read_text())["instances"][0]
    answer = json.dumps({"predictions": [row[:10]]}).encode()
    assert [n for n in range(16) if prepared.is_right(n, answer)] == [3]
    for bad in (b"", b"{}", b'{"predictions": []}', b'{"predictions": [[1, 2]]}'):
        assert not prepared.is_right(3, bad)


def test_class_is_right_if_its_score_is_the_best(tmp_path):
    """A picture's answer is its best class with the model's score for it."""
    expected = np.float32([[0.1, 0.8, 0.1]])
    prepared = Prepared(tmp_path, (), expected, JPEG)

    def is_right(class_id, score):
        answer = {"class_id": class_id, "score": score}
        return prepared.is_right(0, json.dumps(answer).encode())

    assert is_right("1", 0.8001)
    assert not is_right("1", 0.7)
    assert not is_right("0", 0.1)
    assert not is_right("7", 0.8)


def test_plan_tries_settings_in_the_first_round_only():
    """Servers are measured by turns, and only the first round tries all settings."""
    servers = [SET_UPS["gunicorn"], SET_UPS["mosec"]]
    plan = Plan([LOADS["tiny"], LOADS["policy"]], servers, rounds=2)
    tiny, policy = plan.loads
    assert plan.set_ups_of(tiny) == servers
    assert [*plan.rounds_of(tiny)] == [1, 2]
    assert [*plan.rounds_of(policy)] == [1]
    tried = [plan.settings(tiny, servers[1], number) for number in (1, 2)]
    assert [*map(len, tried)] == [3, 1]
    assert len(plan.settings(policy, servers[1], 1)) == 1
    assert plan.cells() == 1 + 3 + 1 + 1 + 2 * 5


def test_commit_before_is_measured_by_turns(tmp_path):
    """Each set-up of Basket is followed by the same from another commit's tree."""
    set_ups = [SET_UPS[name] for name in ("gunicorn", "shared", "mosec")]
    pairs = list(with_before(set_ups, "abc1234", tmp_path))
    shared = "Basket, shared model, 2 workers"
    titles = [BASKET, f"{BASKET}, before", shared, f"{shared}, before", "mosec"]
    assert [each.title for each in pairs] == titles
    assert pairs[1].settings == (Setting("abc1234", root=tmp_path),)
    rows = [cell(server=each.title, setting=each.settings[0].title) for each in pairs]
    report = tables.markdown(campaign(rows))
    assert "| Basket, Gunicorn, before | abc1234 | 32 clients | 100 |" in report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--loads", "tiny,huge"],
            "'huge' is none of: tiny, mnet, big, policy, growth",
        ),
        (["--servers", "apache"], "'apache' is none of: gunicorn, openvino"),
        (["--before", "nowhere"], "'nowhere' is no commit of"),
        (["--seconds", "-1"], "-1 is not above 0"),
    ],
)
def test_unknown_option_value_is_answered_with_the_known_ones(arguments, said, capsys):
    """A value that cannot be used is refused with what there is."""
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err


def test_missing_wrk_is_named(monkeypatch, tmp_path, capsys):
    """Without wrk nothing is started, and Debian's package is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main([f"--out={tmp_path / 'report'}"]) == 2
    assert "Debian's package wrk" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_mean_batch_is_counted_after_the_warm_up(monkeypatch):
    """Batches of the warm-up are not in the mean batch."""
    began_at = time.monotonic()
    reads_s = []

    def ran(_):
        reads_s.append(time.monotonic() - began_at)
        return 6.0 * len(reads_s), 2.0 * len(reads_s)

    monkeypatch.setattr(Target, "ran", ran)
    target = Target(None, Prepared(Path(), (), np.empty(0, np.float32)))
    assert load.by_users(target, Clients(0), Timing(0.05, 0.05)).batch_rows == 3
    assert reads_s[0] >= 0.05
