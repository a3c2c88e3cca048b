"""For how many rows the outputs of two models agree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.engines.base import Array, Engine, Tensors

# Relative to the output's largest value.
TOLERANCE = 0.01
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """For how many rows one output of two models agrees.

    Scores, which are floats of shape (classes,), agree in their top class. Other floats
    agree if every value is within 1 % of the output's largest; other dtypes if all
    values are equal. Of each row `agrees` says whether it does, `differences` has its
    largest difference, and `lost` whether the second model has NaN or infinity where
    the first has numbers. `top_classes` is the number of distinct top classes, None for
    outputs that are not scores.
    """

    output: str
    measure: str
    agrees: Bools
    differences: Floats
    lost: Bools
    is_float: bool
    top_classes: int | None = None

    def share(self) -> float:
        """Return the fraction of agreeing rows, 0 to 1."""
        return float(self.agrees.mean())

    def describe(self) -> str:
        """Return one line for display."""
        return (
            f"{self.output}: {self.measure} in {100 * self.share():.4g} % of "
            f"{len(self.agrees)} rows, largest difference {self.differences.max():.2g}"
        )


class OutputComparison:
    """Compares one output of two models, batch by batch.

    What the first model answers with NaN or infinity says nothing about the second.
    """

    def __init__(self, output: str, max_difference: float | None = None) -> None:
        """Store the name; `max_difference` replaces the conditions for floats."""
        self._output = output
        self._max_difference = max_difference
        # One array a batch.
        self._apart: list[Floats] = []
        self._same: list[Bools] = []
        self._lost: list[Bools] = []
        self._largest = 0.0
        self._top_classes: set[int] = set()
        self._has_floats = self._has_scores = False

    def add(self, expected: Array, actual: Array) -> None:
        """Compare a batch, (rows, *shape) of each."""
        rows = len(expected)
        same, lost = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        apart = np.zeros(rows)
        if expected.shape != actual.shape:
            apart[:] = np.inf
        elif "f" in (expected.dtype.kind, actual.dtype.kind):
            self._has_floats = True
            same, apart, lost = self._floats(
                expected.astype(np.float64), actual.astype(np.float64)
            )
        else:
            equal = np.asarray(expected == actual, np.bool_).reshape(rows, -1)
            np.all(equal, axis=1, out=same)
        self._same.append(same)
        self._apart.append(apart)
        self._lost.append(lost)

    def _floats(self, expected: Floats, actual: Floats) -> tuple[Bools, Floats, Bools]:
        """Return, by row, whether it agrees as scores do, how far it is, what is lost.

        Whether other floats agree depends on the largest of all batches.
        """
        rows = len(expected)
        known = np.isfinite(expected)
        lost: Bools = np.any((known & ~np.isfinite(actual)).reshape(rows, -1), axis=1)
        largest = float(np.abs(expected[known]).max(initial=0.0))
        self._largest = max(self._largest, largest)
        with np.errstate(invalid="ignore"):
            apart = np.where(known, np.abs(expected - actual), 0.0)
        apart = np.where(np.isnan(apart), np.inf, apart).reshape(rows, -1)
        same = ~lost
        if expected.ndim == 2 and expected.shape[1] > 1:  # noqa: PLR2004
            self._has_scores = True
            unknown = np.isnan(expected)
            top, other = (
                np.where(unknown, -np.inf, each).argmax(axis=1)
                for each in (expected, actual)
            )
            self._top_classes |= set(top.tolist())
            same &= top == other
        return same, apart.max(axis=1, initial=0.0), lost

    def result(self) -> Agreement:
        """Return how far the batches agree; there is at least one."""
        same, apart = np.concatenate(self._same), np.concatenate(self._apart)
        measure = "equal values"
        if self._has_floats and self._max_difference is not None:
            measure = f"values within {self._max_difference:g}"
            same = apart <= self._max_difference
        elif self._has_scores:
            measure = "the same top class"
        elif self._has_floats:
            measure = f"values within {TOLERANCE:.0%} of the largest"
            same = apart <= TOLERANCE * self._largest
        return Agreement(
            self._output,
            measure,
            agrees=same,
            differences=apart,
            lost=np.concatenate(self._lost),
            is_float=self._has_floats,
            top_classes=len(self._top_classes) if self._has_scores else None,
        )


def compare(
    original: Engine, other: Engine, batches: Sequence[Tensors]
) -> list[Agreement]:
    """Run batches through the first signature of both; return one result per output."""
    (name, signature), *_ = original.signatures.items()
    found = {spec.name: OutputComparison(spec.name) for spec in signature.outputs}
    for batch in batches:
        expected, actual = original.run(batch, name), other.run(batch, name)
        for output, comparison in found.items():
            comparison.add(expected[output], actual[output])
    return [each.result() for each in found.values()]
