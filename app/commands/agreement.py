"""How far a model's answers are those of another, on the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engines.base import Array, Engine, Tensors, TensorSpec

# What counts as the same number, as a share of the output's largest.
_CLOSE = 0.01


@dataclass(frozen=True)
class Agreement:
    """For how many of the rows an output says the same.

    For scores, which are floats of shape (classes,), the same is the same top class.
    For other floats it is every value within 1 % of the output's largest; for all else,
    equal values. `difference` is the largest of floats; `answers` says how many
    different top classes there were, None for what are no scores.
    """

    output: str
    rows: int
    agreeing: int
    measure: str
    difference: float = 0.0
    answers: int | None = None

    def share(self) -> float:
        """From 0 to 1."""
        return self.agreeing / self.rows

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.output}: {self.measure} in {100 * self.share():.4g} % of "
            f"{self.rows} rows, largest difference {self.difference:.2g}"
        )


def compare(
    original: Engine, other: Engine, batches: Sequence[Tensors]
) -> list[Agreement]:
    """Run batches through the first signature of both; one finding for each output."""
    (name, signature), *_ = original.signatures.items()
    wanted = [original.run(batch, name) for batch in batches]
    given = [other.run(batch, name) for batch in batches]
    return [
        _agreement(spec, _joined(wanted, spec.name), _joined(given, spec.name))
        for spec in signature.outputs
    ]


def _joined(answers: Sequence[Tensors], output: str) -> Array:
    return np.concatenate([each[output] for each in answers])


def _agreement(spec: TensorSpec, wanted: Array, given: Array) -> Agreement:
    rows = len(wanted)
    if spec.dtype.kind != "f":
        same = (wanted == given).reshape(rows, -1).all(axis=1)
        return Agreement(spec.name, rows, int(same.sum()), "equal values")
    apart = np.abs(wanted.astype(np.float64) - given.astype(np.float64))
    apart = apart.reshape(rows, -1)
    difference = float(apart.max(initial=0.0))
    if wanted.ndim == 2 and wanted.shape[1] > 1:  # noqa: PLR2004
        top = wanted.argmax(axis=1)
        # A NaN is no answer, whatever place it stands in.
        same = (top == given.argmax(axis=1)) & np.isfinite(apart).all(axis=1)
        return Agreement(
            *(spec.name, rows, int(same.sum()), "the same top class", difference),
            len(np.unique(top)),
        )
    near = apart <= _CLOSE * np.abs(wanted).max(initial=0.0)
    same = near.all(axis=1)
    measure = f"values within {_CLOSE:.0%} of the largest"
    return Agreement(spec.name, rows, int(same.sum()), measure, difference)
