"""Known rows: whether a row's outputs are the same alone and in a batch."""

from collections.abc import Sequence

import numpy as np

from app.batching.model_log import ModelLog
from app.engines.base import Engine, Tensors
from app.engines.batch_invariance import (
    compare,
    largest_difference,
    must_not_share,
    row_alone,
)
from app.engines.random_rows import RandomRows
from app.errors import ModelLoadError

# A share of an output's largest value. Half precision and TF32 take 0.01, and among
# nearly equal scores one of the eight class ids that are compared may change.
_TOLERANCE = 0.125


class KnownRows:
    """Compares the outputs of rows of one signature."""

    def __init__(
        self, engine: Engine, name: str, sizes: Sequence[int], log: ModelLog
    ) -> None:
        """Store the parts; `sizes` are the batch sizes of the warm-up, increasing."""
        self._engine = engine
        self._name = name
        self._sizes = sizes
        self._log = log
        self._is_skipped = False

    def check(
        self, rows: RandomRows, alone: Tensors, among: Tensors, size: int
    ) -> None:
        """Compare one row's outputs alone and in a batch of `size` rows.

        If no batch has so many rows, only look for a size that is the number of rows.

        Raises:
            ModelLoadError: they depend on the batch.
        """
        self._check_sizes(alone, among, size)
        if size <= self._sizes[-1]:
            self._check_values(rows, alone, among, size)

    def _check_sizes(self, alone: Tensors, among: Tensors, size: int) -> None:
        """Raise a ModelLoadError if a size of a row's output is the number of rows."""
        for name, array in alone.items():
            shapes = array.shape[1:], among[name].shape[1:]
            pairs = set(zip(*shapes, strict=False))
            if (self._sizes[0], size) in pairs and self._sizes[0] != size:
                raise ModelLoadError(
                    f"{self._name}: a row's {name} has shape {shapes[0]} in a batch of "
                    f"{self._sizes[0]} and {shapes[1]} in one of {size}. So Keras "
                    "computes TimeDistributed over a free number of steps: give "
                    "keras.Input a fixed one, and export it again"
                )

    def _check_values(
        self, rows: RandomRows, alone: Tensors, among: Tensors, size: int
    ) -> None:
        """Raise a ModelLoadError if a row's outputs depend on its batch of this size.

        More rows confirm the first difference.
        """
        first = largest_difference("in a batch", [alone], [among])
        if self._is_skipped or first.share <= _TOLERANCE:
            return
        largest = self._sizes[-1]
        comparison = compare(self._engine, self._name, rows, largest, self._sizes[0])
        if comparison.is_random(_TOLERANCE):
            self._skip(
                "from run to run: the model draws random numbers, or has a state"
            )
            return
        shapes = alone[first.output].shape[1:], among[first.output].shape[1:]
        problem = comparison.problem(_TOLERANCE)
        if shapes[0] != shapes[1]:
            problem = (
                f"a row's {first.output} has shape {shapes[0]} alone and {shapes[1]} "
                f"in a batch of {size}"
            )
        elif problem and self._is_unstable(rows, among):
            self._skip("for nearly equal rows: the model may sort by close scores")
            return
        if not problem:
            return
        fixed = self._engine.signatures[self._name].fixed_batch_size
        if fixed:
            raise ModelLoadError(
                f"{self._name}: {problem}. Its rows depend on each other, and its "
                f"batches have exactly {fixed}: save it with a free first dimension"
            )
        raise ModelLoadError(must_not_share(f"{self._name}: {problem}"))

    def _skip(self, how: str) -> None:
        """Compare no more rows; say how answers differ that should not."""
        self._is_skipped = True
        self._log.warning(
            "%s: rows can't be compared, as answers differ %s", self._name, how
        )

    def _is_unstable(self, rows: RandomRows, among: Tensors) -> bool:
        """Return whether a small change of a row changes its outputs as much.

        A detector's boxes change places so where scores are nearly equal. Then a
        difference in a batch may be one of rounding. `among` are outputs in a batch:
        what is little beside them is no change.
        """
        random = np.random.default_rng(0)
        row = rows.make(1, random)
        outputs = [
            self._engine.run(row_alone(each, 0, self._sizes[0]), self._name)
            for each in (row, _nudged(row, random))
        ]
        first, other = [row_alone(each, 0) for each in outputs]
        change = largest_difference("nudged", [first, among], [other, among])
        return change.share > _TOLERANCE


def _nudged(row: Tensors, random: np.random.Generator) -> Tensors:
    """Return a row whose floats and shades of pixels, not ids, are a little different.

    The change of floats is that of TF32's rounding.
    """
    found = dict(row)
    for name, array in row.items():
        if array.dtype.kind == "f":
            change = 1 + 1e-3 * random.uniform(-1, 1, array.shape)
            found[name] = np.multiply(array, change, dtype=array.dtype)
        elif array.dtype == np.uint8:
            found[name] = array ^ random.integers(0, 2, array.shape, np.uint8)
    return found
