"""The numbers of a model's versions where its folder does not give them."""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class VersionNumbers:
    """Lists the contents that a model has had: the first is version 1.

    The list is a file, which the processes of a server lock, so that all of them give
    a content the same number. Without a file it is this process's alone.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Store the path of the list; None: keep it in memory."""
        self._file = file
        self._in_memory: list[str] = []
        self._lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator[list[str]]:
        """Yield the contents so far, in order; what the block appends is kept.

        Raises:
            OSError: the file can't be read or written.
        """
        with self._lock:
            if self._file is None:
                yield self._in_memory
                return
            with self._file.open("a+", encoding="ascii") as file:
                # Until the file is closed.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                contents = file.read().split()
                known = len(contents)
                yield contents
                file.writelines(f"{each}\n" for each in contents[known:])
