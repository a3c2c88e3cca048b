"""The few batch sizes that a batch is filled up to, where each costs something."""

import bisect
from collections.abc import Iterator, Sequence

import numpy as np

from app.engines.base import Array


def batch_sizes(max_batch_size: int, allowed: Sequence[int] = ()) -> Sequence[int]:
    """All sizes that are allowed, else 1, 2, 4 and so on up to the largest."""
    if allowed:
        return allowed
    doubles = [1 << n for n in range(max_batch_size.bit_length())]
    return sorted({*doubles, max_batch_size})


def parts(rows: int, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """How to run so many rows in batches of these increasing sizes.

    Gives where each part begins and ends, and the smallest size that holds it.
    """
    for start in range(0, rows, sizes[-1]):
        stop = min(rows, start + sizes[-1])
        yield start, stop, sizes[bisect.bisect_left(sizes, stop - start)]


def resized(array: Array, rows: int) -> Array:
    """The array filled up to so many rows with its last one.

    As in TensorFlow Serving, real rows fill a batch up: a model may fail on zeros.
    """
    missing = rows - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
