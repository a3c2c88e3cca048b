"""Runs the same rows through both versions, within a limit of time."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.promotion.measures.answers import Answers, Failure, answer_or_failure
from app.promotion.side import RowGroup, Side


class Pair(NamedTuple):
    """The answers of both versions to some rows of a group.

    A failure is that of one row alone.
    """

    rows: Sequence[int]
    serving: Answers | Failure
    candidate: Answers | Failure


class Pairs:
    """Runs rows, and counts the seconds that both versions took."""

    def __init__(self, serving: Side, candidate: Side, sizes: Sequence[int]) -> None:
        """Store the parts; `sizes` are those of batches, increasing."""
        self.serving = serving
        self.candidate = candidate
        self._sizes = sizes
        self.seconds = 0.0

    def of(
        self, group: RowGroup, rows: Sequence[int], until_s: float
    ) -> Iterator[Pair]:
        """Yield answers for rows in batches, which grow from one row.

        It ends once both versions took `until_s` in all; one batch always runs.
        """
        start, size = 0, 1
        most = self.most_rows(group)
        while start < len(rows):
            yield from self._answered(group, rows[start : start + size], until_s)
            start += size
            if self.seconds >= until_s:
                return
            size = min(self._next(size), most)

    def both(self, group: RowGroup, rows: Sequence[int]) -> Pair:
        """Return the answers of both versions to rows in one batch."""
        serving, _ = self.run(self.serving, group, rows)
        candidate, _ = self.run(self.candidate, group, rows)
        return Pair(rows, serving, candidate)

    def run(
        self, side: Side, group: RowGroup, rows: Sequence[int]
    ) -> tuple[Answers | Failure, float]:
        """Return the answers of one version, and the seconds they took."""
        began_at = side.clock()
        answers = answer_or_failure(side, group, rows, self._sizes)
        seconds = side.clock() - began_at
        self.seconds += seconds
        return answers, seconds

    def _answered(
        self, group: RowGroup, rows: Sequence[int], until_s: float
    ) -> Iterator[Pair]:
        """Yield the answers; halve a batch until each failure is that of one row."""
        pair = self.both(group, rows)
        has_failed = isinstance(pair.serving, Failure) or isinstance(
            pair.candidate, Failure
        )
        if not has_failed or len(rows) == 1:
            yield pair
            return
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            if self.seconds < until_s:
                yield from self._answered(group, half, until_s)

    def most_rows(self, group: RowGroup) -> int:
        """Return the most rows of a group that both versions take as one batch."""
        name = group.signature_name
        return min(
            side.signatures[name].batch_sizes(self._sizes)[-1]
            for side in (self.serving, self.candidate)
        )

    def _next(self, size: int) -> int:
        return next((each for each in self._sizes if each > size), self._sizes[-1])
