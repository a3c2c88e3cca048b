"""Allowed batch sizes, and how a batch is split and padded to them."""

import bisect
from collections.abc import Iterator, Sequence

import numpy as np

from app.engines.base import Array


def batch_sizes(max_batch_size: int, allowed: Sequence[int] = ()) -> Sequence[int]:
    """Return the allowed sizes, else the powers of two up to the maximum, and it."""
    if allowed:
        return allowed
    powers = [1 << n for n in range(max_batch_size.bit_length())]
    return sorted({*powers, max_batch_size})


def split(rows: int, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, stop, size) for each batch that runs a part of so many rows.

    `sizes` increase; `size` is the smallest that holds the part's rows.
    """
    for start in range(0, rows, sizes[-1]):
        stop = min(rows, start + sizes[-1])
        yield start, stop, sizes[bisect.bisect_left(sizes, stop - start)]


def pad(array: Array, rows: int) -> Array:
    """Return the array padded to so many rows with copies of its last row.

    As in TensorFlow Serving, padding is real rows: a model may fail on zeros.
    """
    missing = rows - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
