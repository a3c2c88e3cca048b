"""How many rows a model process has, for all web workers to read."""

import mmap
import os
import threading

_BYTES = 8


class Load:
    """A number in memory that processes share; one writes, the others read.

    The memory is anonymous, known by a file descriptor only, so it goes with the last
    process that has it.
    """

    def __init__(self, fd: int | None = None) -> None:
        """Make one, or read another process's by the descriptor that it gave."""
        self.fd = os.memfd_create("basket-load") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, _BYTES)
        self._number = memoryview(mmap.mmap(self.fd, _BYTES)).cast("q")
        self._writing = threading.Lock()

    def rows(self) -> int:
        """Rows that wait or run now; no system call."""
        return self._number[0]

    def add(self, rows: int) -> None:
        """Count rows in, or out where negative."""
        with self._writing:
            self._number[0] += rows

    def close(self) -> None:
        """Let go of the descriptor; the number can still be read."""
        os.close(self.fd)
