"""Allowed batch sizes, and how batches are split and padded to them."""

import numpy as np
import pytest

from app.engines.batch_sizes import batch_sizes, pad, split


@pytest.mark.parametrize(
    ("most", "allowed", "sizes"),
    [
        (1, (), [1]),
        (2, (), [1, 2]),
        (64, (), [1, 2, 4, 8, 16, 32, 64]),
        (48, (), [1, 2, 4, 8, 16, 32, 48]),
        (48, (6, 48), [6, 48]),
    ],
)
def test_batch_sizes_are_the_allowed_ones_or_powers_of_two(most, allowed, sizes):
    """Without allowed_batch_sizes, sizes double up to max_batch_size."""
    assert list(batch_sizes(most, allowed)) == sizes


@pytest.mark.parametrize(
    ("rows", "sizes", "expected"),
    [
        (1, [1, 2, 4], [(0, 1, 1)]),
        (3, [1, 2, 4], [(0, 3, 4)]),
        (4, [1, 2, 4], [(0, 4, 4)]),
        (9, [1, 2, 4], [(0, 4, 4), (4, 8, 4), (8, 9, 1)]),
        (3, [8], [(0, 3, 8)]),
    ],
)
def test_rows_above_the_largest_batch_size_are_split(rows, sizes, expected):
    """Each part runs in the smallest size that holds it."""
    assert list(split(rows, sizes)) == expected


def test_padding_repeats_the_last_row():
    """A batch is padded with its last row; one of the right size is not copied."""
    rows = np.arange(6).reshape(3, 2)
    assert pad(rows, 5).tolist() == [[0, 1], [2, 3], [4, 5], [4, 5], [4, 5]]
    assert pad(rows, 3) is rows
