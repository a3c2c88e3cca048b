"""The processes of a server: their age and memory, as Linux has them in /proc."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.run_dir import MODEL_PROCESS, WORKER
from app.run_dir.notes import Notes

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Index of the start's time, in ticks since the boot, behind the name in /proc/PID/stat.
_START = 19


@dataclass(frozen=True)
class Process:
    """A process; memory is what it has in RAM.

    The rest of it beside `own_mib` are pages of files, such as libraries, which
    processes share.
    """

    pid: int
    kind: str
    age_s: float
    memory_mib: float
    own_mib: float


def processes(notes: Notes) -> list[Process]:
    """Return the living processes of this server, the master first.

    `notes` are those that workers leave under Gunicorn, by their kind.
    """
    noted = sorted((note.pid, note.key) for note in notes.all())
    master = (os.getppid(), "master")
    kinds = [master, *noted] if noted else [(os.getpid(), WORKER)]
    found = [_read(pid, kind) for pid, kind in kinds]
    return [process for process in found if process is not None]


def engines(living: Sequence[Process]) -> int:
    """Return the number of processes that hold each model."""
    kinds = [each.kind for each in living]
    return kinds.count(MODEL_PROCESS) or kinds.count(WORKER)


def memory_mib(living: Sequence[Process]) -> float:
    """Return the memory of all processes, with pages that they share once.

    These are taken for those of the process that has most of them. The exact number,
    PSS, takes the kernel 50 ms for a process with TensorFlow.
    """
    shared_mib = [each.memory_mib - each.own_mib for each in living]
    return sum(each.own_mib for each in living) + max(shared_mib, default=0.0)


def _read(pid: int, kind: str) -> Process | None:
    folder = Path("/proc", str(pid))
    try:
        status = (folder / "status").read_text()
        # The name may contain spaces and brackets.
        after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return None  # it has ended
    age_s = up_s - int(after_name[_START]) / _TICKS_PER_S
    sizes = dict(line.split(":", 1) for line in status.splitlines())
    # A process that has just ended has none.
    mib = [int(sizes.get(name, "0").split()[0]) / 1024 for name in ("VmRSS", "RssAnon")]
    return Process(
        pid, kind, round(max(age_s, 0.0), 1), *(round(each, 1) for each in mib)
    )
