"""The report, the aims and the plan of the comparison with other servers."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from bench import load
from bench.figures import Cell, Clients, Seen, Timing, medians
from bench.load import Target
from bench.peers import __main__ as command
from bench.peers import tables
from bench.peers.aims import AIMS, Figures
from bench.peers.loads import LOADS, prepare
from bench.peers.run import Bare, Comparison, Plan
from bench.peers.servers import SET_UPS, Setting, with_before
from bench.prepared import JPEG, Prepared
from bench.report import Progress


def cell(load="tiny", server="mosec", setting="", rate=100.0, round=1, **more):
    clients = more.pop("clients", Clients(32))
    problem = more.pop("problem", None)
    seen = Seen(rate=rate, **more)
    return Cell(load, server, setting, clients, round, seen, problem)


def verdict(what, rows, bare=()):
    (aim,) = [aim for aim in AIMS if aim.what == what]
    return aim.verdict(Figures(rows, bare))[2:]


def campaign(cells, header=""):
    return Comparison(header, Progress(len(cells)), cells)


def test_server_that_never_ran_keeps_its_problem():
    """A server without figures is one row with its problem, without a ratio."""
    rows = medians([cell(rate=0.0, problem="no internet"), cell(server="gunicorn")])
    assert [row.problem for row in rows] == ["no internet", None]
    assert verdict("tiny: x mosec", rows) == ("not measured", "")


@pytest.mark.parametrize(("rate", "reached"), [(139.0, "**no**"), (140.0, "yes")])
def test_aim_is_reached_at_its_limit(rate, reached):
    """A ratio of two servers of one run reaches the aim at its limit."""
    rows = [cell(server="gunicorn", rate=rate), cell(server="mosec")]
    assert verdict("tiny: x mosec", rows) == (f"{rate / 100:.3f}", reached)


def test_best_peer_is_not_basket():
    """The best peer of an aim is never one of Basket's set-ups."""
    servers = {"gunicorn": 125.0, "openvino": 900.0, "mosec": 90.0, "litserve": 100.0}
    rows = [cell("mnet", server, rate=rate) for server, rate in servers.items()]
    assert verdict("mnet: x best peer", rows) == ("1.250", "yes")


def test_one_connection_is_compared_with_the_commit_before():
    """The median is a ratio to the commit before, the p99 is in milliseconds."""
    medians_s = {"gunicorn": 0.0003, "gunicorn-before": 0.0005}
    rows = [
        cell("growth", server, clients=Clients(1), p50_s=p50_s, p99_s=0.002)
        for server, p50_s in medians_s.items()
    ]
    rows.insert(0, cell("growth", "gunicorn", p50_s=1.0, p99_s=1.0))
    assert verdict("growth: 1 client, median, x before", rows) == ("0.600", "yes")
    assert verdict("growth: 1 client, p99 (ms)", rows) == ("2.000", "**no**")


def test_mean_has_an_aim_for_each_kind_of_clients():
    """Thinking and other clients have aims of their own, with upper limits."""
    kinds = {Clients(20): 0.319, Clients(20, thinks=True): 0.456}
    rows = [
        cell("policy", "gunicorn", clients=clients, mean_s=mean_s)
        for clients, mean_s in kinds.items()
    ]
    assert verdict("policy: mean, 20 clients (s)", rows) == ("0.319", "yes")
    assert verdict("policy: mean, 20 thinking clients (s)", rows) == ("0.456", "**no**")


def test_share_of_the_engine_is_a_median_of_rounds():
    """Server and engine alone are compared within each round."""
    rounds = [(50.0, 100.0), (80.0, 100.0), (90.0, 300.0)]
    bare = [
        Bare("big", "gunicorn", number, 30, served, alone)
        for number, (served, alone) in enumerate(rounds, 1)
    ]
    assert verdict("big: rows/s, x the engine alone", [], bare) == ("0.500", "**no**")


def test_kept_of_the_peak_ignores_rates_before_it():
    """The lowest rate counts from the peak on; fewer connections have a lower rate."""
    rates = {16: 100.0, 64: 1000.0, 256: 800.0, 1000: 950.0}
    rows = [
        cell("growth", "gunicorn", rate=rate, clients=Clients(count))
        for count, rate in rates.items()
    ]
    assert verdict("growth: kept of the peak", rows) == ("0.800", "**no**")


def test_report_begins_with_problems():
    """Problems and wrong answers stand above the tables, ratios are those of rates."""
    cells = [
        cell(server="gunicorn", rate=150.0, wrong=1, checked=20),
        cell(server="mosec", setting="waits 1 ms", rate=100.0),
        cell(server="litserve", rate=0.0, problem="litserve can't be installed"),
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
    (first, *_) = json.loads(json.dumps(made.as_json()))["cells"]
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
    names = ["gunicorn", "gunicorn-before", "shared", "shared-before", "mosec"]
    assert [each.name for each in pairs] == names
    assert pairs[1].settings == (Setting("abc1234", root=tmp_path),)
    rows = [cell(server=each.name, setting=each.settings[0].title) for each in pairs]
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
    with pytest.raises(SystemExit) as ended:
        command.main([f"--out={tmp_path / 'report'}"])
    assert ended.value.code == 2
    assert "Debian's package wrk" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_mean_batch_is_counted_after_the_warm_up():
    """Batches of the warm-up are not in the mean batch."""
    began_at = time.monotonic()
    reads_s = []

    def batches():
        reads_s.append(time.monotonic() - began_at)
        return 6.0 * len(reads_s), 2.0 * len(reads_s)

    prepared = Prepared(Path(), (), np.empty(0, np.float32))
    target = Target(0, prepared, batches=batches)
    assert load.by_users(target, Clients(0), Timing(0.05, 0.05)).batch_rows == 3
    assert reads_s[0] >= 0.05
