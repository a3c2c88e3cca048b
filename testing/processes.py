"""CPU time of processes, their limit of file descriptors, and runs of Python."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from testing.server import ROOT

_TICKS = os.sysconf("SC_CLK_TCK")
# In /proc/PID/stat, behind the name: user and system time, own and of children that
# have ended.
_TIMES = slice(11, 15)


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of processes and of their children that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            ticks += sum(map(int, fields.split()[_TIMES]))
    return ticks / _TICKS


def run_python(*args: str, **environ: str) -> str:
    """Run this Python in the repository, with more variables; return what it prints.

    Raises:
        subprocess.CalledProcessError: it failed; with its output.
    """
    ran = subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env=os.environ | environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to its maximum, for child processes too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
