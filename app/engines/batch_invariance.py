"""Batch invariance: a row's output must not depend on the rows beside it.

A batch holds rows of unrelated requests, so a model may be batched only if each row
gets the output that it gets alone, but for rounding.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from app.engines.base import Array, Signature, Tensors
from app.engines.batch_sizes import pad
from app.engines.difference import largest_magnitude, relative_difference

# A share of an output's largest value.
TOLERANCE = 1e-4
# A row beside copies of itself differs by the rounding of other kernels: up to 1e-6 in
# float32, 1e-2 in half precision and TF32. Among other rows that may be so many times
# as much.
_ROUNDING_FACTOR = 10
# What is more is no rounding.
_MOST_ROUNDING = 0.125


class RowSource(Protocol):
    """Where rows come from."""

    def make(self, rows: int, random: np.random.Generator) -> Tensors:
        """Return so many rows, (rows, *shape) by input."""
        ...

    def blank(self, rows: int) -> Tensors:
        """Return rows of zeros, shaped as the others."""
        ...

    def large(self, rows: int, random: np.random.Generator) -> Tensors | None:
        """Return rows of larger values, shaped as the others; None: there are none."""
        ...


class Difference(NamedTuple):
    """How far an output is from that of the same rows run alone, at most.

    Floats are relative to the output's largest value; for other dtypes it is the
    fraction of unequal values. `row` is the number of the row that differs most, and
    `shapes` says how, if it has another shape. `condition` describes the rest of the
    batch.
    """

    condition: str
    output: str
    share: float
    row: int
    shapes: str


@dataclass(frozen=True)
class Comparison:
    """The largest difference for each condition, and that to another row's output.

    `problem` is why rows must not share a batch, `not_comparable` how answers differ
    that no batch explains; both are empty where rows are independent.
    """

    differences: tuple[Difference, ...]
    other_row: Difference
    problem: str
    not_comparable: str


def compare(
    run: Callable[[Tensors], Tensors],
    source: RowSource,
    batch_rows: int,
    alone_rows: int = 1,
    tolerance: float = TOLERANCE,
    most_rows: int = 8,
) -> Comparison:
    """Run rows alone, and all of them in batches of `batch_rows` (>= 2).

    There are at most `most_rows`, which repeat in a batch. A row alone is padded with
    copies to `alone_rows`.

    Raises:
        Exception: whatever the model raises.
    """
    comparing = _Comparing(run, source, batch_rows, alone_rows, most_rows)
    return comparing.result(tolerance)


class _Comparing:
    """One comparison: `probes` are the rows, `alone` the output of each."""

    def __init__(
        self,
        run: Callable[[Tensors], Tensors],
        source: RowSource,
        batch_rows: int,
        alone_rows: int,
        most_rows: int,
    ) -> None:
        self._run_batch = run
        self._batch_rows, self._alone_rows = batch_rows, alone_rows
        random = np.random.default_rng(0)
        count = min(most_rows, batch_rows)
        self._probes = source.make(count, random)
        # Half a batch of a few rows, so that there is a place for others.
        few = min(count, batch_rows // 2)
        self._few = range(few)
        self._other = source.make(1, random)
        neighbors = {
            "beside zeros": source.blank(batch_rows - few),
            "beside large rows": source.large(batch_rows - few, random),
        }
        self._beside = {
            condition: {
                each: np.concatenate([array[:few], others[each]])
                for each, array in self._probes.items()
            }
            for condition, others in neighbors.items()
            if others is not None
        }

    def result(self, tolerance: float) -> Comparison:
        rows = len(next(iter(self._probes.values())))
        self._alone = [self._run_alone(self._probes, row) for row in range(rows)]
        order = [place % rows for place in range(self._batch_rows)]
        again = self._differences(
            "alone again",
            [self._run_alone(self._probes, row) for row in range(rows)],
            range(rows),
        )
        beside_others = [
            *self._differences("among others", self._run(self._batch(order)), order),
            *self._differences(
                "in another place", self._run(self._batch(order[::-1])), order[::-1]
            ),
            *self._compared_beside(),
        ]
        worst = {
            output: max(
                (each for each in beside_others if each.output == output), key=_share
            )
            for output in self._alone[0]
        }
        copies = [self._beside_copies(each.output, each.row) for each in worst.values()]
        found = [*again, *beside_others, *copies]
        problem, not_comparable = "", ""
        for first, second, copied in zip(again, worst.values(), copies, strict=True):
            each = max(second, copied, key=_share)
            if each.share <= self._limit(first, [copied], tolerance):
                continue
            # One row may be rounded alike by chance.
            rounded = [copied, *self._rows_beside_copies(each.output)]
            limit = self._limit(first, rounded, tolerance)
            if each.share <= limit:
                continue
            # Where copies are not rounded at all, no rounding explains a difference.
            is_exact = not any(map(_share, (first, *rounded)))
            why = "" if is_exact else self._not_comparable(first, each)
            not_comparable = not_comparable or why
            if not why:
                problem = problem or self._problem(each, limit)
        conditions = dict.fromkeys(each.condition for each in found)
        other = self._run_alone(self._other, 0)
        return Comparison(
            tuple(
                max((each for each in found if each.condition == of), key=_share)
                for of in conditions
            ),
            max(
                self._differences("another row", [other] * rows, range(rows)),
                key=_share,
            ),
            problem,
            "" if problem else not_comparable,
        )

    def _compared_beside(self) -> list[Difference]:
        """Return the differences beside rows of values that a model may refuse."""
        found = []
        for condition, batch in self._beside.items():
            with suppress(Exception):  # a model may raise anything
                found += self._differences(condition, self._run(batch), self._few)
        return found

    def _limit(
        self, again: Difference, copied: Sequence[Difference], tolerance: float
    ) -> float:
        """Return how much an output may differ by rounding.

        Of other dtypes one value may: among nearly equal scores a class id changes.
        """
        rounding = _ROUNDING_FACTOR * max(map(_share, (again, *copied)))
        output = self._alone[0][again.output]
        if output.dtype.kind != "f":
            rounding = max(rounding, 1 / (len(self._alone) * max(output.size, 1)))
        return max(min(rounding, _MOST_ROUNDING), tolerance)

    def _not_comparable(self, again: Difference, found: Difference) -> str:
        """Return how an output differs as much without other rows, "" if it does not.

        A detector's boxes change places where scores are nearly equal: there, a
        difference in a batch may be one of rounding.
        """
        if again.share * _ROUNDING_FACTOR >= found.share:
            return "from run to run: the model draws random numbers, or has a state"
        row = row_alone(self._probes, found.row)
        nudged = self._run_alone(_nudged(row, np.random.default_rng(0)), 0)
        expected, output = self._alone[found.row], found.output
        if expected[output].shape != nudged[output].shape:
            return ""
        scale = largest_magnitude([each[output] for each in self._alone])
        change = relative_difference(expected[output], nudged[output], scale)
        if change * 2 >= found.share:
            return "for nearly equal rows: the model may sort by close scores"
        return ""

    def _problem(self, found: Difference, limit: float) -> str:
        if found.shapes:
            return f"a row's {found.output} has {found.shapes} {found.condition}"
        return (
            f"a row's {found.output} differs by {found.share:.1e} {found.condition}, "
            f"more than {limit:.1g}"
        )

    def _rows_beside_copies(self, output: str) -> list[Difference]:
        return [self._beside_copies(output, row) for row in range(len(self._alone))]

    def _beside_copies(self, output: str, row: int) -> Difference:
        """Return the difference of a row's output beside copies of the row.

        So a batch is padded to one of allowed_batch_sizes, too.
        """
        order = [row] * self._batch_rows
        found = self._differences("beside copies", self._run(self._batch(order)), order)
        return next(each for each in found if each.output == output)

    def _batch(self, order: Sequence[int]) -> Tensors:
        return {name: array[order] for name, array in self._probes.items()}

    def _run(self, batch: Tensors) -> list[Tensors]:
        """Return the outputs of each row of a batch."""
        outputs = self._run_batch(batch)
        rows = len(next(iter(batch.values())))
        return [row_alone(outputs, row) for row in range(rows)]

    def _run_alone(self, rows: Tensors, row: int) -> Tensors:
        return self._run(row_alone(rows, row, self._alone_rows))[0]

    def _differences(
        self, condition: str, outputs: Sequence[Tensors], order: Sequence[int]
    ) -> list[Difference]:
        """Return the difference of each output; `order` has the rows of a batch."""
        return differences(self._alone, outputs, order, condition)


def differences(
    alone: Sequence[Tensors],
    outputs: Sequence[Tensors],
    order: Sequence[int],
    condition: str = "among others",
) -> list[Difference]:
    """Return how far each output is from that of the same row alone.

    `outputs` are those of some rows of a batch, and `order` the numbers of these rows
    in `alone`.
    """
    found = []
    for name, first in alone[0].items():
        scale = largest_magnitude([row[name] for row in alone])
        shares = [
            relative_difference(alone[row][name], output[name], scale)
            for row, output in zip(order, outputs, strict=False)
        ]
        worst = int(np.argmax(shares))
        share = shares[worst] if first.dtype.kind == "f" else float(np.mean(shares))
        expected, given = alone[order[worst]][name].shape, outputs[worst][name].shape
        shapes = f"shape {expected[1:]} alone and {given[1:]}"
        found.append(
            Difference(
                condition=condition,
                output=name,
                share=share,
                row=order[worst],
                shapes="" if expected == given else shapes,
            )
        )
    return found


def why_unbatched(problem: str, signature: Signature) -> str:
    """Return the reason why a signature is unbatched, and what makes it batch again."""
    mend = "save it without what looks at the whole batch"
    if any(spec.dtype.kind == "O" for spec in signature.inputs):
        mend = (
            "give TextVectorization an output_sequence_length, or Embedding "
            "mask_zero=True, and save it again"
        )
    return (
        f"its rows depend on each other: {problem}. To have it batched, {mend}; to "
        "have it as it is without this note, write max_batch_size = 1 into its "
        "basket.toml"
    )


def row_alone(batch: Tensors, row: int, rows: int = 1) -> Tensors:
    """Return one row of a batch, padded to `rows` with copies of itself."""
    return {name: pad(array[row : row + 1], rows) for name, array in batch.items()}


def _share(difference: Difference) -> float:
    return difference.share


def _nudged(row: Tensors, random: np.random.Generator) -> Tensors:
    """Return a row whose floats and shades of pixels, not ids, are a little different.

    The change of floats is that of TF32's rounding.
    """
    found: dict[str, Array] = dict(row)
    for name, array in row.items():
        if array.dtype.kind == "f":
            change = 1 + 1e-3 * random.uniform(-1, 1, array.shape)
            found[name] = np.multiply(array, change, dtype=array.dtype)
        elif array.dtype == np.uint8:
            found[name] = array ^ random.integers(0, 2, array.shape, np.uint8)
    return found
