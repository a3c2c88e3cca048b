"""The files in which Gunicorn's processes count, and what the dead ones have left.

prometheus_client sums up the files of all processes that there ever were. Where
`--max-requests` replaces workers there are ever more, and each look takes longer. So
whoever looks puts those of the dead into one.
"""

import fcntl
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from app.pids import lives

# What is summed up; of gauges only those of the living count.
_KINDS = ("counter", "histogram")
# In the place of a process's number.
_DEAD = "dead"
# Of a file, and of a value in it beside its key, at most.
_HEADER_BYTES, _VALUE_BYTES = 8, 32

# It has no types.
_Values: Any = MmapedDict

_log = logging.getLogger(__name__)


class Collector(MultiProcessCollector):
    """Collects what all processes have counted in the files of a folder."""

    def collect(self) -> Iterable[Metric]:
        """The sums, of files of which nobody takes some away meanwhile."""
        folder = Path(self._path)
        try:
            _merge_dead(folder)
        except BlockingIOError:
            pass  # Somebody looks at them now; there will be another time.
        except OSError as error:
            _log.warning("counts of dead processes can't be put together: %s", error)
        with _locked(folder, fcntl.LOCK_SH):
            return super().collect()  # type: ignore[no-any-return, no-untyped-call]


def _merge_dead(folder: Path) -> None:
    """Put the files of the dead into one of each kind.

    Raises:
        BlockingIOError: somebody looks at them now.
        OSError: there is no room for it.
    """
    if not any(_left(folder, kind) for kind in _KINDS):
        return
    with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for kind in _KINDS:
            # Another process may have been faster.
            files = _left(folder, kind)
            if files:
                _merge(files, folder / f"{kind}_{_DEAD}.db")


def _left(folder: Path, kind: str) -> list[Path]:
    return [
        file
        for file in folder.glob(f"{kind}_[0-9]*.db")
        if not lives(int(file.stem.rpartition("_")[2]))
    ]


def _merge(files: Sequence[Path], target: Path) -> None:
    sums: dict[str, float] = defaultdict(float)
    before = [target] if target.exists() else []
    for file in (*before, *files):
        for key, value, _, _ in _Values.read_all_values_from_file(file):
            sums[key] += value
    partial = target.with_suffix(".partial")
    try:
        _write(partial, sums)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    for file in files:
        file.unlink()


def _write(file: Path, sums: Mapping[str, float]) -> None:
    size = _HEADER_BYTES + sum(len(key.encode()) + _VALUE_BYTES for key in sums)
    with file.open("wb") as room:
        # Where a disk is full, to write to mapped memory would end the process.
        os.posix_fallocate(room.fileno(), 0, size)
    values = _Values(str(file))
    for key, value in sums.items():
        values.write_value(key, value, 0.0)
    values.close()


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)
