"""Memory of processes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Return how much more this process may use, of the machine or its container."""
    text = Path("/proc/meminfo").read_text()
    found = 1024 * int(text.partition("MemAvailable:")[2].split()[0])
    try:
        limit, used = (
            int((_CGROUP / f"memory.{name}").read_text()) for name in ("max", "current")
        )
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return found
    return max(min(found, limit - used), 0)


def resident_mib(pid: int) -> float:
    """Return a process's resident memory in MiB, 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * _PAGE_BYTES / (1 << 20)


@contextmanager
def peak_mib_of(pid: int) -> Iterator[Callable[[], float]]:
    """Yield a function that returns by how many MiB a process grew at most since."""
    before = resident_mib(pid)
    # Sets the peak to the current size.
    Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak() -> float:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024 - before

    yield peak
