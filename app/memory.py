"""Memory of this process: garbage collections, and its return to the system.

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
from collections.abc import Callable

# None if the C library is not GNU's.
_malloc_trim: Callable[[int], object] | None = getattr(
    ctypes.CDLL(None), "malloc_trim", None
)
# Threshold of the youngest generation. Requests leave no cycles behind, and each has
# some 50 objects: collections took 5 % of the event loop's time for a small request
# with Python's 700, and with 10,000 a tenth of it for 1,000 requests under way.
_YOUNGEST_THRESHOLD = 50_000


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
