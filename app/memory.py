"""Memory of this process: how much it has, and return of freed memory to the system.

The C library keeps memory that a thread frees for later use by that thread. With a
thread for each batch, picture or version, that adds up. The free end of a thread's heap
can't be returned, up to 64 MiB: what takes much memory runs in few threads.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

# None if the C library is not GNU's.
_malloc_trim: Callable[[int], object] | None = getattr(
    ctypes.CDLL(None), "malloc_trim", None
)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes() -> int:
    """Return the bytes of this process's memory that are in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


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


def give_back() -> None:
    """Return the free memory of all threads to the system; takes milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)
