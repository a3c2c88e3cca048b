"""What TensorFlow writes about missing GPUs, and what of it the log has."""

import os
import subprocess
import sys

import pytest

from app import gpus
from testing.server import ROOT, serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW

NOISE = ("cudart_stub", "oneDNN", "InitializeLog", "cpu_feature_guard", "cuInit")
# Ends as TensorFlow does on a processor that lacks what it was compiled for.
ABORTS = """
import os, resource
from app.engines.noise import hidden_noise
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with hidden_noise():
    os.write(2, b"I0000 00:00:1 2 cudart_stub.cc:31] Could not find cuda drivers.\\n")
    os.write(2, b"E0000 00:00:1 2 gpu.cc:52] a real error\\n")
    os.write(2, b"F0000 00:00:1 2 cpu_feature_guard.cc:31] no AVX\\n")
    os.abort()
"""
# Is interrupted as by Ctrl-C, which all processes of the terminal's group get.
INTERRUPTED = """
import os, signal
from app.engines.noise import hidden_noise
signal.signal(signal.SIGINT, lambda *_: None)
with hidden_noise():
    os.write(2, b"before\\n")
    os.killpg(0, signal.SIGINT)
    for _ in range(100):
        os.write(2, b"after\\n")
        os.sched_yield()
"""


@pytest.mark.skipif(bool(gpus.installed()), reason="needs a machine without a GPU")
@pytest.mark.parametrize("level", ["", "0"])
def test_log_on_a_machine_without_a_gpu_has_no_lines_about_gpus(monkeypatch, level):
    """The variable that TensorFlow documents shows all of them."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    environ = {"TF_CPP_MIN_LOG_LEVEL": level} if level else {}
    with serving(environ=environ) as server:
        log = server.log.read_text()
    assert [each for each in NOISE if each in log] == (list(NOISE) if level else [])
    assert "is ready (" in log


def test_errors_are_written_even_if_the_process_aborts():
    """Only known lines are left out, and by a process that outlives this one."""
    ran = subprocess.run(
        [sys.executable, "-c", ABORTS],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode < 0
    lines = [each.partition("] ")[2] for each in ran.stderr.splitlines()]
    assert lines == ["a real error", "no AVX"]


def test_errors_are_written_after_an_interrupt():
    """Ctrl-C does not end the process that reads them."""
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        start_new_session=True,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0
    assert ran.stderr.splitlines() == ["before", *["after"] * 100]
