"""The command for a GPU, where there is none, and the page that it writes."""

from types import SimpleNamespace

import pytest

from app import gpus
from bench.gpu import __main__ as command
from bench.gpu import device as devices
from bench.gpu import page
from bench.gpu.plan import BATCHING, FULL, NAIVE, QUICK
from bench.gpu.run import Found, Memory
from bench.peers.cells import Cell
from bench.peers.loads import Clients
from testing.server import ROOT

GIB = 1 << 30
ABOUT = page.About("python -m bench.gpu", "2030-01-01", {"GPU": "a card"}, 1000, False)


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    """On any machine there is no GPU here, and nothing begins to measure."""

    def measures(*_):
        raise AssertionError("it measures")

    monkeypatch.setattr(gpus, "installed", lambda: ())
    monkeypatch.setattr(command, "_measure", measures)


def cell(server="naive", users=5, **figures):
    return Cell("recurrent", server, "", Clients(users, thinks=True), 1, **figures)


def found(**parts):
    rates = [(1, 3.0), (2, 6.0), (4, 9.0)]
    return Found(steps=1250, row_ms=301.2, weights_mib=1028.5, rates=rates, **parts)


def test_without_a_gpu_it_says_so_and_ends(capsys):
    """Where no GPU is, one line says so, the status is 1, and the page stays."""
    before = (ROOT / "docs" / "gpu.md").read_bytes()
    assert command.main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("no NVIDIA GPU here, so nothing is measured;")
    assert (ROOT / "docs" / "gpu.md").read_bytes() == before


@pytest.mark.parametrize("option", ["--quick", "--any-device"])
def test_a_trial_run_wants_a_folder(option, capsys):
    """What a trial run finds can't come into the documents."""
    with pytest.raises(SystemExit) as ended:
        command.main([option])
    assert ended.value.code == 2
    assert "a trial run goes into a folder of its own" in capsys.readouterr().err


def test_what_is_not_installed_is_named(monkeypatch, tmp_path, capsys):
    """Where JAX is missing, it is named before anything starts."""
    monkeypatch.setattr(command, "find_spec", lambda name: name != "jax" or None)
    options = ["--quick", "--any-device", f"--out={tmp_path / 'out'}"]
    assert command.main(options) == 1
    assert capsys.readouterr().err == "not installed: jax; see docs/gpu.md\n"
    assert not (tmp_path / "out").exists()


def test_the_first_gpu_is_the_one_for_all(monkeypatch):
    """What is started later sees one GPU, the one of which NVML tells."""
    used = iter([2 * GIB, 5 * GIB])
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetName=lambda handle: f"card {handle}",
        nvmlSystemGetDriverVersion=lambda: "580.1",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=next(used)),
    )
    monkeypatch.setattr(devices, "pynvml", nvml)
    there = (gpus.Gpu(2, "GPU-2", 8192), gpus.Gpu(3, "GPU-3", 8192))
    monkeypatch.setattr(gpus, "installed", lambda: there)
    pinned = []
    monkeypatch.setattr(gpus, "pin", pinned.append)
    card = devices.gpu()
    assert pinned == [2]
    assert (card.name, card.driver, card.memory_mib) == ("card 2", "580.1", 8192)
    assert card.used_mib() == 2048
    assert card.used_mib() == 5120


def test_the_plan_is_the_article_s():
    """A model of 300 ms and 1 to 64 users; those who wait in line are given time."""
    assert FULL.latency_ms == 300
    assert FULL.users == (1, 5, 20, 64)
    line = 64 * 0.3
    assert FULL.timing(NAIVE, 64).warm_up_s >= 2 * line
    assert FULL.timing(NAIVE, 64).measured_s >= 3 * line
    assert FULL.timing(BATCHING, 64).measured_s >= 25
    assert QUICK.left_s(0) > QUICK.left_s(3) > QUICK.left_s(4) > 0


def test_the_page_has_what_was_measured():
    """Users, sizes of a batch and memory are in tables, failures are counted."""
    bad = {"asked": 600, "wrong": 2, "errors": 3, "not_2xx": 4}
    cells = [
        cell(mean_s=0.4, p95_s=0.61, rate=2.1, asked=50, batch_rows=1.0),
        cell("batching", 64, mean_s=0.5, p95_s=0.6, rate=25.6, batch_rows=12.34, **bad),
    ]
    memory = [Memory("batching", 100, 250)]
    text = page.markdown(found(cells=cells, memory=memory), ABOUT)
    assert "`python -m bench.gpu`, on 2030-01-01." in text
    assert "| GPU | a card |" in text
    assert "| naive | 5 | 0.400 | 0.610 | 2.10 | 1.0 | 50 | 0 |" in text
    assert "| batching | 64 | 0.500 | 0.600 | 25.60 | 12.3 | 607 | 9 |" in text
    assert "| 4 | 444.4 | 9.0 | 3.0 |" in text
    assert "| batching | 100 | 250 | 25% |" in text
    assert "trial" not in text


def test_a_trial_run_says_that_it_is_one():
    """A page of a trial run begins with what its figures are worth."""
    about = page.About("c", "2030-01-01", {}, 1000, trial=True)
    assert "**A trial run" in page.markdown(found(), about)


def test_failed_requests_are_a_failure():
    """A run in which an answer was wrong, or none came, is not sound."""
    assert found(cells=[cell(rate=1.0)]).sound
    assert not found(cells=[cell(rate=1.0, wrong=1)]).sound
    assert not found(cells=[cell()]).sound
