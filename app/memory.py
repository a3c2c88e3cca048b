"""Memory of this process: how much it has, garbage collections, and its return.

A full garbage collection visits all objects that are not frozen, and holds the GIL
meanwhile, so every request waits. The server and a framework, hundreds of thousands of
objects that stay, are frozen once they are imported. Versions are not: the collection
that follows an unload frees their reference cycles.

The C library keeps memory that a thread frees for later use by that thread. With a
thread for each batch, picture or version, that adds up. The free end of a thread's heap
can't be returned, up to 64 MiB: what takes much memory runs in few threads.
"""

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

# None if the C library is not GNU's.
_malloc_trim: Callable[[int], object] | None = getattr(
    ctypes.CDLL(None), "malloc_trim", None
)
# Threshold of the youngest generation. Requests leave no cycles behind, and each has
# some 50 objects: collections took 5 % of the event loop's time for a small request
# with Python's 700, and with 10,000 a tenth of it for 1,000 requests under way.
_YOUNGEST_THRESHOLD = 50_000
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


def freeze() -> None:
    """Let garbage collections be seldom from now on, and not visit what there is.

    Requests under way, and versions of another framework, are frozen, too. They are
    freed by reference counting; their cycles stay until an `unfreeze` of `collect`.
    """
    gc.set_threshold(_YOUNGEST_THRESHOLD)
    gc.freeze()


def is_frozen(item: object) -> bool:
    """Return whether collections do not visit an object, which may have references."""
    return not any(each is item for each in gc.get_objects())


def collect(*, unfreeze: bool = False) -> None:
    """Collect garbage, also among frozen objects if `unfreeze`, and return its memory.

    Each version was loaded in a thread of its own, which kept free memory, too.
    """
    if unfreeze:
        gc.unfreeze()
    gc.collect()
    if unfreeze:
        gc.freeze()
    give_back()


def give_back() -> None:
    """Return the free memory of all threads to the system; takes milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)
