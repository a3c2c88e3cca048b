"""What the decoding of one request may cost."""

import sys
from collections.abc import Callable
from typing import NamedTuple

# Bodies and outputs up to this size are decoded and encoded on the event loop, larger
# ones in a thread.
INLINE_BYTES = 64 << 10

# Raises an error once nobody waits for the request any more.
Check = Callable[[], None]


def unchecked() -> None:
    """Check nothing."""


class Bounds(NamedTuple):
    """The most rows of a request, and a check that long work calls between its parts.

    The parts take a few milliseconds, except for the pixels of one image. With
    `splits_rows`, rows of unlike shapes are no error.
    """

    max_rows: int = sys.maxsize
    check: Check = unchecked
    splits_rows: bool = False


UNBOUNDED = Bounds()
