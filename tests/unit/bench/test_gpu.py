"""The GPU benchmark without a GPU, and its report."""

import pytest

from app import gpus
from bench.figures import Cell, Clients, Seen
from bench.gpu import __main__ as command
from bench.gpu.run import FULL, QUICK, Experiment, Found

HEADER = "`python -m bench.gpu` on 2030-01-01; GPU: a card."


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    """No GPU is visible on any machine, and nothing begins to measure."""

    def measures(*_):
        raise AssertionError("it measures")

    monkeypatch.setattr(gpus, "installed", lambda: ())
    monkeypatch.setattr(Experiment, "measure_all", measures)


def cell(server="naive", users=5, **figures):
    clients = Clients(users, thinks=True)
    return Cell("recurrent", server, "", clients, 1, Seen(**figures))


def found(**parts):
    rates = [(1, 3.0), (2, 6.0), (4, 9.0)]
    return Experiment(HEADER, 0, found=Found(rates=rates), **parts)


class Card:
    """A GPU of 1,000 MiB."""

    def read(self):
        return (gpus.GpuMemory(0, "a card", 1000, 0),)


def test_missing_gpu_ends_the_command_with_one_line(capsys):
    """Without a GPU the status is 1, and one line is printed."""
    assert command.main([]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("no NVIDIA GPU here, so nothing is measured;")


def test_missing_jax_is_named(monkeypatch, tmp_path, capsys):
    """Without JAX the command names it before anything starts."""
    monkeypatch.setattr(command, "find_spec", lambda name: name != "jax" or None)
    options = ["--quick", f"--out={tmp_path / 'out'}"]
    assert command.main(options) == 1
    assert capsys.readouterr().err == "not installed: jax; see docs/gpu.md\n"
    assert not (tmp_path / "out").exists()


def test_plan_follows_the_article():
    """The model takes 300 ms for 1 to 64 users; serial requests get enough time."""
    assert FULL.latency_ms == 300
    assert FULL.users == (1, 5, 20, 64)
    (naive, _), (batching, _), _ = FULL.steps()
    serial_s = 64 * 0.3
    many = cell(users=64)
    assert FULL.timing(naive, many).warm_up_s >= 2 * serial_s
    assert FULL.timing(naive, many).measured_s >= 3 * serial_s
    assert FULL.timing(batching, many).measured_s >= 25
    assert QUICK.timing(naive, cell()) == QUICK.seconds


def test_report_has_all_figures():
    """Users, batch sizes and memory are in tables, and failures are counted."""
    bad = {"checked": 600, "wrong": 2, "errors": 3, "not_2xx": 4}
    cells = [
        cell(mean_s=0.4, p95_s=0.61, rate=2.1, checked=50, batch_rows=1.0),
        cell("batching", 64, mean_s=0.5, p95_s=0.6, rate=25.6, batch_rows=12.34, **bad),
    ]
    run = found(gpu=Card(), cells=cells, memory=[("batching", 100, 250)])
    text = command.markdown(run, trial=False)
    assert HEADER in text
    naive = "| naive | 5 | 2.10 | 400.00 | 0.00 | 610.00 | 0.00 | 1.0 | 0 | 0 of 50 |"
    assert naive in text
    batching = "| batching | 64 | 25.60 | 500.00 | 0.00 | 600.00 | 0.00 | 12.3 |"
    assert f"{batching} 7 | 2 of 600 |" in text
    assert "| 4 | 444.4 | 9.0 | 3.0 |" in text
    assert "| batching | 100 | 250 | 25% |" in text
    assert "trial" not in text


def test_report_of_a_trial_run_says_so():
    """The report of a trial run begins with the warning that figures mean nothing."""
    assert command.markdown(found(), trial=True).startswith("**A trial run")
