"""What the comparison with other servers makes of what it measures."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from bench import environments
from bench.peers import __main__ as command
from bench.peers import drive, tables
from bench.peers.aims import AIMS, Figures, kept_of_peak
from bench.peers.cells import Bare, Campaign, Cell, best_setting, summed_up
from bench.peers.loads import JPEG, LOADS, Clients, Load, Prepared
from bench.peers.models import prepare
from bench.peers.plan import Plan, Timing
from bench.peers.running import Running
from bench.peers.set_ups import SET_UPS, Setting, with_before


def cell(load="tiny", server="mosec", setting="", rate=100.0, round=1, **more):
    clients = more.pop("clients", Clients(32))
    return Cell(load, server, setting, clients, round, rate=rate, **more)


def told(what, rows, bare=()):
    (aim,) = [aim for aim in AIMS if aim.what == what]
    return aim.told(Figures(rows, bare))[2:]


def test_the_best_setting_of_the_first_round_goes_on():
    """A row is the median of the best setting's rounds; the others don't count."""
    cells = [
        cell(setting="waits 1 ms", rate=100),
        cell(setting="waits 10 ms", rate=120, errors=1),
        cell(setting="waits 10 ms", rate=90, round=2, errors=2),
        cell(setting="waits 10 ms", rate=100, round=3),
        cell(setting="waits 1 ms", rate=500, round=3),
    ]
    assert best_setting(cells) == "waits 10 ms"
    (row,) = summed_up(cells)
    assert (row.setting, row.rate, row.round, row.errors) == ("waits 10 ms", 100, 3, 3)


def test_a_server_that_never_ran_keeps_its_problem():
    """A server without figures is one row that says why, and its ratio is left out."""
    rows = summed_up([cell(rate=0.0, problem="no internet"), cell(server="gunicorn")])
    assert [row.problem for row in rows] == ["no internet", None]
    assert told("tiny: x mosec", rows) == ("not measured", "")


@pytest.mark.parametrize(("rate", "verdict"), [(139.0, "**no**"), (140.0, "yes")])
def test_an_aim_is_reached_at_its_limit(rate, verdict):
    """A ratio is of two servers of the same run, and the limit itself is enough."""
    rows = [cell(server="gunicorn", rate=rate), cell(server="mosec")]
    assert told("tiny: x mosec", rows) == (f"{rate / 100:.3f}", verdict)


def test_the_best_peer_is_no_basket():
    """Where an aim names the best peer, Basket's own set-ups are none."""
    servers = {"gunicorn": 125.0, "openvino": 900.0, "mosec": 90.0, "litserve": 100.0}
    rows = [cell("mnet", server, rate=rate) for server, rate in servers.items()]
    assert told("mnet: x best peer", rows) == ("1.250", "yes")


def test_one_connection_is_compared_with_the_commit_before():
    """The median is a ratio of the rows of one connection, the p99 is milliseconds."""
    medians_s = {"gunicorn": 0.0003, "gunicorn-before": 0.0005}
    rows = [
        cell("growth", server, clients=Clients(1), p50_s=p50_s, p99_s=0.002)
        for server, p50_s in medians_s.items()
    ]
    rows.insert(0, cell("growth", "gunicorn", p50_s=1.0, p99_s=1.0))
    assert told("growth: 1 client, median, x before", rows) == ("0.600", "yes")
    assert told("growth: 1 client, p99 (ms)", rows) == ("2.000", "**no**")


def test_a_mean_is_of_its_own_clients():
    """Each kind of clients has an aim of its own, which is to be at most its limit."""
    kinds = {Clients(20): 0.319, Clients(20, thinks=True): 0.456}
    rows = [
        cell("policy", "gunicorn", clients=clients, mean_s=mean_s)
        for clients, mean_s in kinds.items()
    ]
    assert told("policy: mean, 20 clients (s)", rows) == ("0.319", "yes")
    assert told("policy: mean, 20 thinking clients (s)", rows) == ("0.456", "**no**")


def test_the_share_is_the_median_of_the_rounds():
    """What the server reaches of the bare engine is compared within each round."""
    rounds = [(50.0, 100.0), (80.0, 100.0), (90.0, 300.0)]
    bare = [
        Bare("big", "gunicorn", number, 30, served, alone)
        for number, (served, alone) in enumerate(rounds, 1)
    ]
    assert told("big: rows/s, x the engine alone", [], bare) == ("0.500", "**no**")


def test_kept_looks_from_the_peak_on():
    """Few connections before the peak are no loss; many after it may be."""
    rates = {16: 100.0, 64: 1000.0, 256: 800.0, 1000: 950.0}
    rows = [cell("growth", rate=r, clients=Clients(n)) for n, r in rates.items()]
    assert kept_of_peak(rows) == 0.8


def test_the_report_says_what_went_wrong_first():
    """Problems and wrong answers stand above the tables; ratios are of the rates."""
    cells = [
        cell(server="gunicorn", rate=150.0, wrong=1, asked=20),
        cell(server="mosec", setting="waits 1 ms", rate=100.0),
        cell(server="litserve", rate=0.0, problem="litserve can't be installed"),
    ]
    campaign = Campaign("python -m bench.peers", "2030-01-01", {}, 5, 1, cells)
    report = tables.markdown(campaign)
    head, _, rest = report.partition("## tiny")
    assert "* tiny, LitServe: litserve can't be installed" in head
    assert "0 without an answer, 0 not 2xx, 1 wrong of 20 looked at" in head
    assert "| Basket, Gunicorn | - | 32 | 150 |" in rest
    assert "| 0 | 1 of 20 | 1.50 |" in rest
    assert "LitServe" not in rest
    assert json.loads(json.dumps(campaign.as_json()))["cells"][0]["rate"] == 150.0


def test_each_request_has_an_answer_of_its_own(tmp_path):
    """An answer that belongs to another request is wrong, as is one that is no JSON."""
    prepared = prepare(LOADS["policy"], tmp_path / "policy")
    row = json.loads(prepared.bodies[3].read_text())["instances"][0]
    answer = json.dumps({"predictions": [row[:10]]}).encode()
    assert [n for n in range(16) if prepared.is_right(n, answer)] == [3]
    for bad in (b"", b"{}", b'{"predictions": []}', b'{"predictions": [[1, 2]]}'):
        assert not prepared.is_right(3, bad)


def test_a_class_is_right_where_its_score_is_the_best(tmp_path):
    """A picture's answer is its best class with the model's score for it."""
    expected = np.float32([[0.1, 0.8, 0.1]])
    prepared = Prepared(Load("m", "", (), JPEG), tmp_path, (), expected)

    def is_right(class_id, score):
        answer = {"class_id": class_id, "score": score}
        return prepared.is_right(0, json.dumps(answer).encode())

    assert is_right("1", 0.8001)
    assert not is_right("1", 0.7)
    assert not is_right("0", 0.1)
    assert not is_right("7", 0.8)


def test_the_plan_tries_settings_in_the_first_round_only():
    """Servers take turns in rounds, and only the first tries all settings."""
    servers = [SET_UPS["gunicorn"], SET_UPS["mosec"]]
    plan = Plan([LOADS["tiny"], LOADS["policy"]], servers, rounds=2)
    tiny, policy = map(plan.rounds_of, plan.loads)
    names = [[step.set_up.name for step in steps] for steps in tiny]
    assert names == [["gunicorn", "mosec"]] * 2
    assert [len(steps[1].settings) for steps in tiny] == [3, 1]
    assert [[len(step.settings) for step in steps] for steps in policy] == [[1, 1]]
    assert plan.cells() == 1 + 3 + 1 + 1 + 2 * 5


def test_the_commit_before_takes_turns_with_todays(tmp_path):
    """Each Gunicorn set-up is followed by its own of another commit's tree."""
    set_ups = [SET_UPS[name] for name in ("gunicorn", "shared", "mosec")]
    pairs = list(with_before(set_ups, "abc1234", tmp_path))
    names = ["gunicorn", "gunicorn-before", "shared", "shared-before", "mosec"]
    assert [each.name for each in pairs] == names
    assert pairs[1].settings == (Setting("abc1234", root=tmp_path),)
    rows = [cell(server=each.name, setting=each.settings[0].title) for each in pairs]
    report = tables.markdown(Campaign("", "2030-01-01", {}, 5, 1, rows))
    assert "| Basket, Gunicorn, before | abc1234 | 32 | 100 |" in report


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--loads", "tiny,huge"],
            "'huge' is none of: tiny, mnet, big, policy, growth",
        ),
        (["--servers", "apache"], "'apache' is none of: gunicorn, openvino"),
        (["--before", "nowhere"], "'nowhere' is no commit of"),
        (["--rounds", "0"], "0 is less than 1"),
        (["--seconds", "-1"], "-1 is not above 0"),
    ],
)
def test_a_wrong_option_says_what_there_is(arguments, said, capsys):
    """An unknown name is answered with the known ones."""
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err


def test_without_wrk_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    """Where wrk is missing, nothing is started, and Debian's package is named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        command.main([f"--out={tmp_path / 'report'}"])
    assert ended.value.code == 2
    assert "Debian's package wrk" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_what_can_t_be_installed_says_so(monkeypatch, tmp_path):
    """A peer that pip can't get raises one line, and leaves no environment behind."""
    monkeypatch.setattr(environments, "_FOLDER", tmp_path)
    requirements = tmp_path / "broken.txt"
    requirements.write_text("no-such-package @ file:///nowhere/at/all.whl\n")
    with pytest.raises(environments.NotInstalled, match="broken can't be installed"):
        environments.python_with("broken", requirements)
    assert not (tmp_path / "broken" / "done").exists()


def test_users_batches_are_counted_after_the_warm_up():
    """What the warm-up's requests ran in is not in the mean batch."""
    began_at = time.monotonic()
    looks_s = []

    def batches():
        looks_s.append(time.monotonic() - began_at)
        return 6.0 * len(looks_s), 2.0 * len(looks_s)

    prepared = Prepared(LOADS["policy"], Path(), (), np.empty(0, np.float32))
    server = Running(0, prepared, batches=batches)
    figures = drive.by_users(server, Clients(0), Timing(0.05, 0.05))
    assert figures["batch_rows"] == 3
    assert looks_s[0] >= 0.05
