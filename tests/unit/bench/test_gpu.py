"""The GPU benchmark without a GPU, and its report."""

import subprocess

import pytest

from app import gpus
from bench.gpu import __main__ as command


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    """No GPU is visible on any machine, and nothing begins to measure."""

    def measures(*_, **__):
        raise AssertionError("it measures")

    monkeypatch.setattr(gpus, "installed", lambda: ())
    # Before all else, a process makes the model.
    monkeypatch.setattr(subprocess, "run", measures)


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
    assert command.main(["--quick", f"--out={tmp_path / 'out'}"]) == 1
    assert capsys.readouterr().err == "not installed: jax; see docs/gpu.md\n"
    assert not (tmp_path / "out").exists()


def test_report_has_batch_sizes_and_memory():
    """The engine alone is compared with one row, and memory with the card's."""
    batches = [(1, 300.0), (2, 300.0), (4, 400.0)]
    found = {"steps": 9, "weights_mib": 1024, "batches": batches}
    text = "\n".join(command.sections(found, [("0.4", "100", "250", "25%")]))
    assert "9 steps and 1.02e+03 MiB of weights; one row takes 300.0 ms" in text
    assert "| 4 | 400.0 | 10.0 | 3.0 |" in text
    assert "| 0.4 | 100 | 250 | 25% |" in text
