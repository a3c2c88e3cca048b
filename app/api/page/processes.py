"""The processes of a server: their age and memory, as Linux has them in /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

from app.run_dir import WORKER
from app.run_dir.notes import Notes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Index of the start's time, in ticks since the boot, behind the name in /proc/PID/stat.
_START = 19


@dataclass(frozen=True)
class Process:
    """A process; memory is what it has in RAM, shared pages included."""

    pid: int
    kind: str
    age_s: float
    memory_mib: float


def processes(notes: Notes) -> list[Process]:
    """Return the living processes of this server, the master first.

    `notes` are those that workers leave under Gunicorn, by their kind.
    """
    noted = sorted((note.pid, note.key) for note in notes.all())
    master = (os.getppid(), "master")
    kinds = [master, *noted] if noted else [(os.getpid(), WORKER)]
    found = [_read(pid, kind) for pid, kind in kinds]
    return [process for process in found if process is not None]


def _read(pid: int, kind: str) -> Process | None:
    folder = Path("/proc", str(pid))
    try:
        pages = int((folder / "statm").read_text().split()[1])
        # The name may contain spaces and brackets.
        after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return None  # it has ended
    age_s = up_s - int(after_name[_START]) / _TICKS_PER_S
    memory_mib = pages * _PAGE_BYTES / (1 << 20)
    return Process(pid, kind, round(max(age_s, 0.0), 1), round(memory_mib, 1))
