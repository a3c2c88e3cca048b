"""The newest values of a list that the processes of a server share."""

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from app.codec import json_text
from app.errors import BadInput


def newest(lines: Sequence[bytes], kept: int) -> list[bytes]:
    """Return the last lines."""
    return list(lines[-kept:])


class LineRing:
    """Keeps the newest JSON values, as lines of a file, or in memory."""

    def __init__(
        self,
        file: Path | None,
        kept: int,
        choose: Callable[[Sequence[bytes], int], list[bytes]] = newest,
    ) -> None:
        """Store the path, None: in memory, and the number of values to keep.

        `choose` returns which lines to keep, in their order, at most that number.
        """
        self._file = file
        self._kept = kept
        self._choose = choose
        self._in_memory: list[bytes] = []
        self._memory_lock = threading.Lock()
        # Lines that this process appends until the file is shortened.
        self._left = 0

    def append(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Append values, the newest last.

        Raises:
            OSError: the file can't be written.
        """
        lines = [json_text.dumps(value) for value in values]
        if self._file is None:
            with self._memory_lock:
                found = [*self._in_memory, *lines]
                self._in_memory = self._choose(found, self._kept)
        elif lines:
            with _locked(self._file):
                self._left -= len(lines)
                if self._left < 0:
                    self._left = self._kept
                    found = [*self._lines(), *lines]
                    _replace(self._file, self._choose(found, self._kept))
                else:
                    _append(self._file, lines)

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """Yield the values.

        Raises:
            OSError: the file can't be read.
        """
        for line in reversed(self._lines()):
            # A process that was killed may have left a part of a line.
            with suppress(BadInput):
                yield json_text.loads(line)

    def _lines(self) -> list[bytes]:
        if self._file is None:
            return self._in_memory
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return []
        # Behind the last line break, a line is being written.
        return self._choose(text.split(b"\n")[:-1], self._kept)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    # The file itself is replaced, so that it can't be the lock.
    with file.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # gevent closes files later, and the lock would last until then.
            fcntl.flock(lock, fcntl.LOCK_UN)


def _append(file: Path, lines: Sequence[bytes]) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        os.write(descriptor, _text(lines if is_whole else [b"", *lines]))
    finally:
        os.close(descriptor)


def _replace(file: Path, lines: Sequence[bytes]) -> None:
    """Write the file anew, under the lock; readers see the old one or the new one."""
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as partial:
        partial.write(_text(lines))
    Path(partial.name).replace(file)


def _text(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
