"""Debian's wrk, run against a URL with pictures, and the memory of who serves it."""

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = Path(__file__).with_name("post_pictures.lua")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FLAT_AFTER_S = 5


@dataclass(frozen=True)
class Load:
    """What one run of wrk saw; memory is resident, of the server's processes.

    `mib_early` was taken 5 seconds after the start, `mib_end` at the end.
    """

    requests: int
    seconds: float
    mean_s: float
    p99_s: float
    not_2xx: int
    errors: int
    mib_early: float
    mib_end: float

    def rate(self) -> float:
        """Requests answered in a second."""
        return self.requests / self.seconds


def drive(
    url: str, pictures: Sequence[Path], connections: int, seconds: int, pid: int
) -> Load:
    """Post the pictures over so many connections to what process `pid` serves.

    Raises:
        subprocess.CalledProcessError: wrk failed.
    """
    early: list[float] = []
    timer = threading.Timer(
        _FLAT_AFTER_S, lambda: early.append(resident_mib(family(pid)))
    )
    timer.start()
    command = [
        *("wrk", "--threads=1", f"--connections={connections}"),
        *(f"--duration={seconds}s", "--timeout=30s", f"--script={_SCRIPT}"),
        *(url, "--", *map(str, pictures)),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    timer.join()
    seen = json.loads(ran.stdout.strip().splitlines()[-1])
    return Load(**seen, mib_early=early[0], mib_end=resident_mib(family(pid)))


def family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in found for one in family(int(child)))]


def resident_mib(pids: Sequence[int]) -> float:
    """What the processes hold in memory together, MiB."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:  # ended meanwhile
            continue
    return pages * _PAGE_BYTES / (1 << 20)
