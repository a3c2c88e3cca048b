"""The GPU benchmark in its trial run, on the processor or a GPU."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from app import gpus
from bench.gpu.__main__ import QUICK_USERS, pinned_gpu
from testing.server import ROOT

pytestmark = [
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed: requirements/jax.txt"
    ),
    pytest.mark.skipif(
        find_spec("matplotlib") is None,
        reason="matplotlib is not installed: requirements/load.txt",
    ),
]
# Run by Python at its start; makes TensorFlow look not installed.
_HIDE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: (
    None if name.split(".")[0] == "tensorflow" else find(name, *more)
)
"""


def test_trial_run_writes_the_report(tmp_path):
    """Without TensorFlow all is measured and drawn, and every answer is right."""
    (tmp_path / "sitecustomize.py").write_text(_HIDE)
    environ = os.environ | {
        "PYTHONPATH": str(tmp_path),
        # Three servers and the engine alone compile the same.
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench.gpu", "--quick"]
    ran = subprocess.run(
        [*command, f"--out={out}"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no TensorFlow is installed, so no answers were compared" in ran.stderr
    text = (out / "report.md").read_text()
    assert text.count("**A trial run") == 1
    setup = r"^\| (naive|batching, auto) \| (\d+) \|.* \| 0 \| 0 of (\d+) \|.*\|  \|$"
    cells = re.findall(setup, text, re.M)
    measured = [(server, int(users)) for server, users, _ in cells]
    names = ("naive", "batching, auto")
    assert measured == [(name, n) for name in names for n in QUICK_USERS]
    assert all(int(requests) > 0 for *_, requests in cells)
    sizes = r"^\| \d+ \| [\d.,]+ \| [\d.,]+ \| [\d.]+ \|$"
    assert len(re.findall(sizes, text, re.M)) == 7
    ((ready, full),) = re.findall(r"^\| 0\.4 \| ([\d,]+) \| ([\d,]+) \|", text, re.M)
    assert (ready != "0") == (full != "0") == bool(gpus.installed())
    assert (out / "mean.png").read_bytes().startswith(b"\x89PNG")


def test_gpu_that_jax_does_not_see_ends_the_command(tmp_path):
    """If JAX has no GPU support, no model is made, and one line says so."""
    command = [sys.executable, "-m", "bench.gpu.model", str(tmp_path), "gpu"]
    ran = subprocess.run(
        [*command, "2", "128"],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("JAX sees no GPU: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not gpus.installed(), reason="no NVIDIA GPU here")
def test_first_visible_gpu_is_measured(monkeypatch):
    """The first visible GPU is pinned, and its memory in use is read."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    first = gpus.installed()[0]
    reader = pinned_gpu()
    assert [each.number for each in gpus.visible()] == [first.number]
    (card,) = reader.read()
    assert card.memory_mib == first.memory_mib
    assert 0 < card.used_mib <= card.memory_mib
