"""Compares the outputs of two versions of a model on the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engines.base import Array, Engine, Tensors, TensorSpec

# Relative to the output's largest value.
_TOLERANCE = 0.01


@dataclass(frozen=True)
class Agreement:
    """For how many rows one output of two models agrees.

    Scores, which are floats of shape (classes,), agree in their top class. Other floats
    agree if every value is within 1 % of the output's largest; other dtypes if all
    values are equal. `difference` is the largest of floats. `top_classes` is the number
    of distinct top classes, None for outputs that are not scores.
    """

    output: str
    rows: int
    agreeing: int
    measure: str
    difference: float = 0.0
    top_classes: int | None = None

    def share(self) -> float:
        """Return the fraction of agreeing rows, 0 to 1."""
        return self.agreeing / self.rows

    def describe(self) -> str:
        """Return one line for display."""
        return (
            f"{self.output}: {self.measure} in {100 * self.share():.4g} % of "
            f"{self.rows} rows, largest difference {self.difference:.2g}"
        )


def compare(
    original: Engine, other: Engine, batches: Sequence[Tensors]
) -> list[Agreement]:
    """Run batches through the first signature of both; return one result per output."""
    (name, signature), *_ = original.signatures.items()
    expected = [original.run(batch, name) for batch in batches]
    actual = [other.run(batch, name) for batch in batches]
    return [
        _agreement(spec, _joined(expected, spec.name), _joined(actual, spec.name))
        for spec in signature.outputs
    ]


def _joined(batches: Sequence[Tensors], output: str) -> Array:
    return np.concatenate([each[output] for each in batches])


def _agreement(spec: TensorSpec, expected: Array, actual: Array) -> Agreement:
    rows = len(expected)
    if spec.dtype.kind != "f":
        same = (expected == actual).reshape(rows, -1).all(axis=1)
        return Agreement(spec.name, rows, int(same.sum()), "equal values")
    apart = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
    apart = apart.reshape(rows, -1)
    difference = float(apart.max(initial=0.0))
    if expected.ndim == 2 and expected.shape[1] > 1:  # noqa: PLR2004
        top = expected.argmax(axis=1)
        # A row with NaN agrees with nothing.
        same = (top == actual.argmax(axis=1)) & np.isfinite(apart).all(axis=1)
        return Agreement(
            *(spec.name, rows, int(same.sum()), "the same top class", difference),
            len(np.unique(top)),
        )
    near = apart <= _TOLERANCE * np.abs(expected).max(initial=0.0)
    same = near.all(axis=1)
    measure = f"values within {_TOLERANCE:.0%} of the largest"
    return Agreement(spec.name, rows, int(same.sum()), measure, difference)
