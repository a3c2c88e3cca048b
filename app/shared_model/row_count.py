"""A model process's number of rows, which all web workers read."""

import mmap
import os
import threading

_BYTES = 8


class RowCount:
    """A number in shared memory, which one process writes and the others read.

    The memory has a file descriptor and no name, so it is freed with the last process
    that maps it.
    """

    def __init__(self, fd: int | None = None) -> None:
        """Map the memory of a file descriptor; None: create it."""
        self.fd = os.memfd_create("basket-rows") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, _BYTES)
        self._number = memoryview(mmap.mmap(self.fd, _BYTES)).cast("q")
        self._writing = threading.Lock()

    def rows(self) -> int:
        """Return the number of rows that wait or run, without a system call."""
        return self._number[0]

    def add(self, rows: int) -> None:
        """Add rows, or subtract them if negative."""
        with self._writing:
            self._number[0] += rows

    def close(self) -> None:
        """Close the file descriptor; the number can still be read."""
        os.close(self.fd)
