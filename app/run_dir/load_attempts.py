"""Loads that ended their process: in native code, or for want of memory.

Nobody catches such an end, and the next process would load the same and end in the
same way, with all other models in it. So each load leaves a mark while it lasts, in a
folder that a server's processes share.
"""

import atexit
import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import NotYetLoadable
from app.run_dir.pids import lives

# One end may have had another cause, such as somebody's kill.
_TOLERATED = 1
# How long the version is left alone then, twice as long after each further end.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0


class Attempts:
    """The marks: <name>/<version>-<content>.<begin in ms>.<process>.

    The monotonic clock is one for all processes.
    """

    def __init__(self, folder: Path | None) -> None:
        """Store where the marks are; None: nowhere."""
        self._folder = folder

    @contextmanager
    def under_way(
        self, name: str, version: int, files: Collection[tuple[str, int, int]]
    ) -> Iterator[None]:
        """Leave a mark while a version is loaded; `files` are name, size, time.

        Raises:
            NotYetLoadable: it has ended its process again and again, and lately.
        """
        if self._folder is None:
            yield
            return
        folder = self._folder / name
        content = hashlib.sha256(repr(sorted(files)).encode()).hexdigest()
        self._check(folder.glob(f"{version}-{content}.*"))
        begin_ms = round(time.monotonic() * 1000)
        mark = folder / f"{version}-{content}.{begin_ms}.{os.getpid()}"
        # A folder that takes no mark is no reason to load nothing.
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            mark.touch()
        # A stop is no crash.
        atexit.register(_remove, [mark])
        try:
            yield
        finally:
            atexit.unregister(_remove)
            left = filter(_is_of_dead, folder.glob(f"{version}-{content}.*"))
            _remove([mark, *left])

    def forget(self, name: str) -> None:
        """Let all versions of a model be tried at once."""
        if self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _check(self, marks: Iterable[Path]) -> None:
        begins_ms = [
            int(mark.name.split(".")[1]) for mark in filter(_is_of_dead, marks)
        ]
        doublings = len(begins_ms) - _TOLERATED - 1
        if doublings < 0:
            return
        pause_s = min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S)
        if time.monotonic() < max(begins_ms) / 1000 + pause_s:
            raise NotYetLoadable(
                f"ended its process {len(begins_ms)} times while it was loaded, by a "
                f"crash or for want of memory; is tried again after {pause_s:.0f} s"
            )


def _is_of_dead(mark: Path) -> bool:
    return not lives(int(mark.name.rpartition(".")[2]))


def _remove(marks: Iterable[Path]) -> None:
    for mark in marks:
        with suppress(OSError):
            mark.unlink()
