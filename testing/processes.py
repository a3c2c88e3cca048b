"""CPU time of processes, from /proc, and their limit of file descriptors."""

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

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


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to its maximum, for child processes too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
