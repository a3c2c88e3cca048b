"""wrk run against a URL with pictures, and the memory of who serves it."""

import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import wrk
from tests.support.pictures import form

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FLAT_AFTER_S = 5


@dataclass(frozen=True)
class Load:
    """What one run of wrk saw; memory is resident, of the server's processes.

    `mib_early` was taken 5 seconds after the start, `mib_end` at the end.
    """

    seen: wrk.Seen
    mib_early: float
    mib_end: float


def drive(
    url: str, pictures: Sequence[Path], connections: int, seconds: int, pid: int
) -> Load:
    """Post the pictures, as files of a form, to what process `pid` serves.

    Raises:
        subprocess.CalledProcessError: wrk failed.
    """
    early: list[float] = []
    timer = threading.Timer(
        _FLAT_AFTER_S, lambda: early.append(resident_mib(family(pid)))
    )
    with tempfile.TemporaryDirectory() as folder:
        bodies = [Path(folder) / picture.name for picture in pictures]
        for body, picture in zip(bodies, pictures, strict=True):
            content, headers = form(picture.read_bytes(), end="")
            body.write_bytes(content)
        timer.start()
        seen = wrk.drive(url, bodies, headers["Content-Type"], connections, seconds)
    timer.join()
    return Load(seen, mib_early=early[0], mib_end=resident_mib(family(pid)))


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
