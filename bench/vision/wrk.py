"""wrk run against a URL with pictures, and the memory of who serves it."""

import argparse
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import wrk
from testing.memory import resident_mib
from testing.pictures import form

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
    timer = threading.Timer(_FLAT_AFTER_S, lambda: early.append(family_mib(pid)))
    with tempfile.TemporaryDirectory() as folder:
        bodies = [Path(folder) / picture.name for picture in pictures]
        for body, picture in zip(bodies, pictures, strict=True):
            content, headers = form(picture.read_bytes(), end="")
            body.write_bytes(content)
        timer.start()
        seen = wrk.drive(url, bodies, headers["Content-Type"], connections, seconds)
    timer.join()
    return Load(seen, mib_early=early[0], mib_end=family_mib(pid))


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in found for one in _family(int(child)))]


def family_mib(pid: int) -> float:
    """What a process and all below it hold in memory together, MiB."""
    return sum(map(resident_mib, _family(pid)))


def load_seconds(text: str) -> int:
    """How long a load lasts, of a command line.

    Raises:
        ValueError: not a whole number.
        argparse.ArgumentTypeError: it would be over when its memory is read.
    """
    seconds = int(text)
    if seconds <= _FLAT_AFTER_S:
        raise argparse.ArgumentTypeError(f"{text} is not above {_FLAT_AFTER_S}")
    return seconds
