"""Rows whose right class is known: labels_file of [promotion]."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.codec.fit import fit
from app.engines.base import Tensors, main_signature
from app.errors import BasketError
from app.promotion.measures.agreement import Bools
from app.promotion.side import RowGroup, Side

_LABELS = "labels"
# Of a version that is as good, one in a hundred is called less accurate.
_CHANCE = 0.01
# From here on a probability is that of the positive class.
_HALF = 0.5


class UnusableLabels(Exception):
    """labels_file can't be used; the text says why."""


@dataclass(frozen=True)
class Labels:
    """Rows of the main signature in random order, and the class of each (rows,)."""

    group: RowGroup
    classes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Accuracy:
    """How many of so many rows each version answers with the right class.

    `lost` and `won` are rows that only the serving and only the new version gets right.
    """

    rows: int
    serving: int
    candidate: int
    lost: int
    won: int

    def is_worse(self) -> bool:
        """Return whether the new version is less accurate, and not by chance.

        That is the exact sign test, one-sided, over the rows which one of both gets
        right.
        """
        return self.lost > self.won and self.p() < _CHANCE

    def p(self) -> float:
        """Return how likely so many lost rows are if both were equally accurate."""
        count = self.lost + self.won
        terms = [
            math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
            for k in range(self.lost, count + 1)
        ]
        return math.fsum(math.exp(each - count * math.log(2)) for each in terms)


def accuracy(serving: Bools, candidate: Bools) -> Accuracy:
    """Return the accuracies, of whether each row is right."""
    return Accuracy(
        *(len(serving), int(serving.sum()), int(candidate.sum())),
        *(int((serving & ~candidate).sum()), int((candidate & ~serving).sum())),
    )


def read_labels(file: Path, side: Side) -> Labels:
    """Return the rows of an .npz: an array for each input, and `labels`.

    Raises:
        UnusableLabels: there is none, or it does not fit the version.
    """
    try:
        # NumPy leaves a damaged file open that it has opened itself.
        with file.open("rb") as content, np.load(content, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise UnusableLabels("there is no such file in the model's folder") from None
    except Exception as error:  # a damaged file may raise anything
        raise UnusableLabels(f"it can't be read as .npz: {str(error)[:200]}") from error
    labels = arrays.pop(_LABELS, None)
    if labels is None:
        raise UnusableLabels(f"it has no array {_LABELS!r}")
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or not len(labels):
        raise UnusableLabels(
            f"{_LABELS}: expected whole numbers of shape (rows,), given {labels.dtype} "
            f"of shape {labels.shape}"
        )
    # So that what is left out for lack of time is of all classes.
    order = np.random.default_rng(0).permutation(len(labels))
    group = _group(arrays, side, len(labels), order)
    return Labels(group, labels[order].astype(np.int64))


def _group(
    arrays: Tensors, side: Side, rows: int, order: npt.NDArray[np.int64]
) -> RowGroup:
    name, signature = main_signature(side.signatures)
    if side.takes_objects() or signature.takes_whole_tensors:
        raise UnusableLabels("the model takes no rows of arrays")
    names = [spec.name for spec in signature.inputs]
    if set(names) != arrays.keys():
        raise UnusableLabels(
            f"expected arrays for {', '.join(names)}, given "
            f"{', '.join(arrays) or 'none'}"
        )
    inputs = {}
    for spec in signature.inputs:
        array = arrays[spec.name]
        if array.ndim and len(array) != rows:
            raise UnusableLabels(
                f"{spec.name} has {len(array)} rows, and {_LABELS} {rows}"
            )
        try:
            inputs[spec.name] = fit(array, spec, spec.name)[order]
        except BasketError as error:
            raise UnusableLabels(str(error)) from error
    return RowGroup(name, inputs)


def classes_of(outputs: Tensors) -> npt.NDArray[np.int64]:
    """Return the class (rows,) that each row of the first output stands for.

    It is the place of the largest score; a whole number itself; and for one probability
    1 from 0.5 on, else 0.

    Raises:
        UnusableLabels: the output is none of these.
    """
    name, array = next(iter(outputs.items()))
    rows = len(array)
    if array.dtype.kind == "f" and array.ndim == 2 and array.shape[1] > 1:  # noqa: PLR2004
        places: npt.NDArray[np.int64] = array.argmax(axis=1)
        return places
    if array.dtype.kind not in "fiub" or array.size != rows:
        raise UnusableLabels(
            f"the output {name} is no class: {array.dtype} of shape {array.shape[1:]}"
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64) >= _HALF
    classes: npt.NDArray[np.int64] = array.reshape(rows).astype(np.int64)
    return classes
