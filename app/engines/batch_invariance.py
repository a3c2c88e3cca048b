"""Checks batch invariance: a row's output must not depend on its batch.

A batch holds rows of unrelated requests, so a model may be batched only if each row
gets the output that it gets alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.engines.base import Engine, Tensors
from app.engines.batch_sizes import pad
from app.engines.difference import largest_magnitude, relative_difference
from app.engines.random_rows import RandomRows

# Rows that are compared; each runs alone as well.
_MAX_PROBES = 8


@dataclass(frozen=True)
class Difference:
    """The largest difference from the outputs of the same rows run alone.

    Floats are relative to the output's largest value; for other dtypes it is the
    fraction of unequal values. `condition` describes the rest of the batch.
    """

    condition: str
    output: str
    share: float


@dataclass(frozen=True)
class Comparison:
    """One difference for each condition, and the difference to another row's output."""

    differences: tuple[Difference, ...]
    other_row: Difference

    def worst(self) -> Difference:
        """Return the largest difference."""
        return max(self.differences, key=lambda each: each.share)

    def is_random(self, tolerance: float) -> bool:
        """Return whether rows differ by more than that when they run alone again."""
        return self.differences[0].share > tolerance

    def problem(self, tolerance: float) -> str:
        """Return why rows must not share a batch, or an empty text."""
        worst = self.worst()
        if worst.share <= tolerance:
            return ""
        return (
            f"a row's {worst.output} differs by {worst.share:.1e} {worst.condition}, "
            f"more than {tolerance:g}"
        )


def compare(
    engine: Engine,
    signature_name: str,
    rows: RandomRows,
    batch_rows: int,
    alone_rows: int = 1,
) -> Comparison:
    """Run rows alone, padded with copies to `alone_rows`, and in `batch_rows` (>= 2).

    Raises:
        Exception: whatever the model raises.
    """
    random = np.random.default_rng(0)
    count = min(_MAX_PROBES, batch_rows // 2)
    probes = rows.make(count, random)
    other = row_alone(rows.make(1, random), 0, alone_rows)
    full = _stack(probes, rows.make(batch_rows - count, random))
    reversed_ = {name: array[::-1].copy() for name, array in full.items()}
    copies = {
        name: np.concatenate([array, array[-1:].repeat(batch_rows - count, axis=0)])
        for name, array in probes.items()
    }
    singles = [row_alone(probes, n, alone_rows) for n in range(count)]
    run = partial(_outputs_by_row, engine, signature_name)
    expected = [run(single)[0] for single in singles]
    conditions = {
        "alone again": [run(single)[0] for single in singles],
        "among others": run(full)[:count],
        "in another place": run(reversed_)[::-1][:count],
        "beside zeros": run(_stack(probes, rows.blank(batch_rows - count)))[:count],
        # As a batch is padded to one of allowed_batch_sizes.
        "beside copies": run(copies)[:count],
    }
    return Comparison(
        tuple(
            largest_difference(condition, expected, actual)
            for condition, actual in conditions.items()
        ),
        largest_difference("another row", expected, run(other)[:1] * count),
    )


def _outputs_by_row(
    engine: Engine, signature_name: str, batch: Tensors
) -> list[Tensors]:
    outputs = engine.run(batch, signature_name)
    rows = len(next(iter(batch.values())))
    return [row_alone(outputs, n) for n in range(rows)]


def must_not_share(problem: str, file: str = "its basket.toml") -> str:
    """Return the error text for a model that must not be batched."""
    return (
        f"{problem}. Rows of this model must not share a batch: write max_batch_size = "
        f"1 into {file}"
    )


def row_alone(batch: Tensors, row: int, rows: int = 1) -> Tensors:
    """Return one row of a batch, padded to `rows` with copies of itself."""
    return {name: pad(array[row : row + 1], rows) for name, array in batch.items()}


def largest_difference(
    condition: str, expected: Sequence[Tensors], actual: Sequence[Tensors]
) -> Difference:
    """Return the difference of the output that differs most between equal rows."""
    found = []
    for name, first in expected[0].items():
        scale = largest_magnitude([row[name] for row in expected])
        shares = [
            relative_difference(one[name], other[name], scale)
            for one, other in zip(expected, actual, strict=True)
        ]
        share = max(shares) if first.dtype.kind == "f" else float(np.mean(shares))
        found.append(Difference(condition, name, share))
    return max(found, key=lambda each: each.share)


def _stack(first: Tensors, second: Tensors) -> Tensors:
    return {name: np.concatenate([first[name], second[name]]) for name in first}
