"""Whether a row's answer depends on the rows that share its batch.

A batch is made of rows of strangers, so a model may be batched only if each row gets
the answer that it would get alone.
"""

from dataclasses import dataclass

import numpy as np

from app.engines.base import Engine, Tensors
from app.engines.difference import scale, share
from app.engines.random_rows import RandomRows

# Rows that are compared; each is run alone too.
_MOST_PROBES = 8


@dataclass(frozen=True)
class Difference:
    """How far answers are from those of the same rows alone, at worst.

    For floats a share of the output's largest value; for all else the share of values
    that are not equal. `company` is what the rows shared their batch with.
    """

    company: str
    output: str
    share: float


@dataclass(frozen=True)
class Comparison:
    """One difference for each company, and how far the answer of another row is."""

    differences: tuple[Difference, ...]
    other_row: Difference

    def worst(self) -> Difference:
        """The largest difference."""
        return max(self.differences, key=lambda each: each.share)


def compare(
    engine: Engine, signature_name: str, rows: RandomRows, batch_rows: int
) -> Comparison:
    """Run rows alone and in batches of `batch_rows`, 2 or more.

    Raises:
        Exception: whatever the model raises.
    """
    random = np.random.default_rng(0)
    count = min(_MOST_PROBES, batch_rows // 2)
    probes, stranger = rows.make(count, random), rows.make(1, random)
    full = _stack(probes, rows.make(batch_rows - count, random))
    turned = {name: array[::-1].copy() for name, array in full.items()}
    zeros = _stack(probes, rows.blank(batch_rows - count))
    copies = {
        name: np.concatenate([array, array[-1:].repeat(batch_rows - count, axis=0)])
        for name, array in probes.items()
    }

    def answers(batch: Tensors) -> list[Tensors]:
        outputs = engine.run(batch, signature_name)
        return [_part(outputs, n, n + 1) for n in range(_rows(batch))]

    def alone() -> list[Tensors]:
        return [answers(_part(probes, n, n + 1))[0] for n in range(count)]

    wanted = alone()
    companies = {
        "alone again": alone(),
        "among others": answers(full)[:count],
        "in another place": answers(turned)[::-1][:count],
        "beside zeros": answers(zeros)[:count],
        # As a batch is filled up to one of allowed_batch_sizes.
        "beside copies": answers(copies)[:count],
    }
    return Comparison(
        tuple(_largest(name, wanted, given) for name, given in companies.items()),
        _largest("another row", wanted, answers(stranger) * count),
    )


def _rows(batch: Tensors) -> int:
    return len(next(iter(batch.values())))


def _part(batch: Tensors, start: int, stop: int) -> Tensors:
    return {name: array[start:stop] for name, array in batch.items()}


def _stack(first: Tensors, second: Tensors) -> Tensors:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def _largest(company: str, wanted: list[Tensors], given: list[Tensors]) -> Difference:
    shares = {
        name: max(
            share(one[name], other[name], scale([answer[name] for answer in wanted]))
            for one, other in zip(wanted, given, strict=True)
        )
        for name in wanted[0]
    }
    output = max(shares, key=lambda name: shares[name])
    return Difference(company, output, shares[output])
