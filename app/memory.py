"""Gives memory that was freed back to the system.

The C library keeps what a thread frees for that thread's next need. Where each batch,
picture or version has a thread of its own, that adds up.
"""

import ctypes
from collections.abc import Callable

# None where the C library is not GNU's.
_malloc_trim: Callable[[int], object] | None = getattr(
    ctypes.CDLL(None), "malloc_trim", None
)


def give_back() -> None:
    """Have the system take what is free, over all threads; takes milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)
