"""Checks batch invariance: a row's output must not depend on its batch.

A batch holds rows of unrelated requests, so a model may be batched only if each row
gets the output that it gets alone.
"""

from dataclasses import dataclass

import numpy as np

from app.engines.base import Engine, Tensors
from app.engines.difference import largest_magnitude, relative_difference
from app.engines.random_rows import RandomRows

# Rows that are compared; each runs alone as well.
_MAX_PROBES = 8


@dataclass(frozen=True)
class Difference:
    """The largest difference from the outputs of the same rows run alone.

    Floats are relative to the output's largest value; other dtypes count unequal
    values. `condition` describes the rest of the batch.
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


def compare(
    engine: Engine, signature_name: str, rows: RandomRows, batch_rows: int
) -> Comparison:
    """Run rows alone and in batches of `batch_rows`, 2 or more.

    Raises:
        Exception: whatever the model raises.
    """
    random = np.random.default_rng(0)
    count = min(_MAX_PROBES, batch_rows // 2)
    probes, other = rows.make(count, random), rows.make(1, random)
    full = _stack(probes, rows.make(batch_rows - count, random))
    reversed_ = {name: array[::-1].copy() for name, array in full.items()}
    zeros = _stack(probes, rows.blank(batch_rows - count))
    copies = {
        name: np.concatenate([array, array[-1:].repeat(batch_rows - count, axis=0)])
        for name, array in probes.items()
    }

    def outputs_by_row(batch: Tensors) -> list[Tensors]:
        outputs = engine.run(batch, signature_name)
        rows = len(next(iter(batch.values())))
        return [_part(outputs, n, n + 1) for n in range(rows)]

    def alone() -> list[Tensors]:
        return [outputs_by_row(_part(probes, n, n + 1))[0] for n in range(count)]

    expected = alone()
    conditions = {
        "alone again": alone(),
        "among others": outputs_by_row(full)[:count],
        "in another place": outputs_by_row(reversed_)[::-1][:count],
        "beside zeros": outputs_by_row(zeros)[:count],
        # As a batch is padded to one of allowed_batch_sizes.
        "beside copies": outputs_by_row(copies)[:count],
    }
    return Comparison(
        tuple(_largest(name, expected, actual) for name, actual in conditions.items()),
        _largest("another row", expected, outputs_by_row(other) * count),
    )


def _part(batch: Tensors, start: int, stop: int) -> Tensors:
    return {name: array[start:stop] for name, array in batch.items()}


def _stack(first: Tensors, second: Tensors) -> Tensors:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def _largest(
    condition: str, expected: list[Tensors], actual: list[Tensors]
) -> Difference:
    found = []
    for name in expected[0]:
        scale = largest_magnitude([row[name] for row in expected])
        found += [
            Difference(
                condition, name, relative_difference(one[name], other[name], scale)
            )
            for one, other in zip(expected, actual, strict=True)
        ]
    return max(found, key=lambda each: each.share)
