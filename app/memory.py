"""Return of freed memory to the system.

The C library keeps memory that a thread frees for later use by that thread. With a
thread for each batch, picture or version, that adds up.
"""

import ctypes
from collections.abc import Callable

# None if the C library is not GNU's.
_malloc_trim: Callable[[int], object] | None = getattr(
    ctypes.CDLL(None), "malloc_trim", None
)


def give_back() -> None:
    """Return the free memory of all threads to the system; takes milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)
