"""What is found while rows run: agreement by signature, failures by version."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from app.promotion.measures.agreement import Agreement, Bools, Floats, OutputComparison
from app.promotion.measures.answers import Answers, Failure
from app.promotion.measures.json_agreement import JsonComparison
from app.promotion.measures.pairs import Pair


class Failures(NamedTuple):
    """On how many rows a version failed, and the most frequent reason."""

    rows: int
    reason: str


class Compared(NamedTuple):
    """How far the outputs of one signature agree, and the numbers of its rows."""

    signature_name: str
    rows: npt.NDArray[np.int64]
    outputs: Sequence[Agreement]

    def agrees(self) -> Bools:
        """Return whether each row agrees in all outputs."""
        found: Bools = np.logical_and.reduce([each.agrees for each in self.outputs])
        return found

    def lost(self) -> Bools:
        """Return whether each row has lost numbers in an output."""
        found: Bools = np.logical_or.reduce([each.lost for each in self.outputs])
        return found

    def differences(self) -> Floats:
        """Return how far each row is apart in the output that differs most."""
        found: Floats = np.maximum.reduce([each.differences for each in self.outputs])
        return found


class Tally:
    """Adds up pairs of answers."""

    def __init__(self, max_difference: float | None) -> None:
        """Store what [promotion] says."""
        self._max_difference = max_difference
        self._outputs: dict[str, dict[str, OutputComparison]] = {}
        self._predictions: dict[str, JsonComparison] = {}
        self._rows: dict[str, list[int]] = {}
        self._failures: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        # Rows that ran, whatever became of them.
        self.rows = 0

    def add(self, name: str, pair: Pair, first_row: int) -> None:
        """Add answers of a signature; `first_row` is the number of the group's."""
        self.rows += len(pair.rows)
        serving, candidate = pair.serving, pair.candidate
        if isinstance(serving, Failure):
            self._failures[0][serving.text] += 1
            return
        if isinstance(candidate, Failure):
            self._failures[1][candidate.text] += 1
            return
        if self._compare(name, serving, candidate):
            numbers = [first_row + row for row in pair.rows]
            self._rows.setdefault(name, []).extend(numbers)

    def _compare(self, name: str, serving: Answers, candidate: Answers) -> bool:
        """Compare what both answer with; return False if that is nothing."""
        found = self._outputs.setdefault(name, {})
        outputs = [each for each in serving.outputs if each in candidate.outputs]
        for output in outputs:
            if output not in found:
                found[output] = OutputComparison(output, self._max_difference)
            found[output].add(serving.outputs[output], candidate.outputs[output])
        if serving.predictions is None or candidate.predictions is None:
            return bool(outputs)
        if name not in self._predictions:
            self._predictions[name] = JsonComparison(
                # Its outputs are compared as arrays.
                self._max_difference,
                ignore_floats=bool(outputs),
            )
        self._predictions[name].add(serving.predictions, candidate.predictions)
        return True

    def compared(self) -> list[Compared]:
        """Return the agreement of each signature of which rows were compared."""
        found = []
        for name, rows in self._rows.items():
            outputs = [each.result() for each in self._outputs[name].values()]
            if name in self._predictions:
                outputs.append(self._predictions[name].result())
            found.append(Compared(name, np.array(rows), outputs))
        return found

    def failures(self) -> tuple[Failures, Failures]:
        """Return those of the serving version, and those of the new one."""
        serving, candidate = (
            Failures(each.total(), max(each, key=each.__getitem__, default=""))
            for each in self._failures
        )
        return serving, candidate
