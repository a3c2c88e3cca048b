"""What a comparison of two versions found, and why the new one is refused."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.promotion.measures.tally import Compared, Failures
from app.promotion.measures.timing import TimedBatches
from app.promotion.replay_rows import ReplayRows
from app.settings.promotion_config import PromotionConfig

_MAX_CHANGES = 3


class DifferentRow(NamedTuple):
    """A row for which versions disagree, and the output that differs most.

    `number` counts from 0 over all replayed rows; `request_id` is empty for rows that
    were not captured. `difference` is 0 for outputs that are no floats.
    """

    number: int
    request_id: str
    output: str
    difference: float

    def describe(self) -> str:
        """Return which row of which request it is, and by how much it differs."""
        by = f" by {self.difference:.2g}" if self.difference else ""
        of = f" (request {self.request_id})" if self.request_id else ""
        return f"row {self.number}, {self.output}{by}{of}"


@dataclass(frozen=True)
class Report:
    """A comparison of the versions (serving, new).

    `fitting_rows` of `rows` fit the new version, `ran_rows` of these ran within the
    limit of time, and those that both versions answered are in `compared`.
    """

    versions: tuple[int, int]
    config: PromotionConfig
    rows: ReplayRows
    signature_changes: Sequence[str]
    fitting_rows: int
    ran_rows: int
    compared: Sequence[Compared]
    serving_failures: Failures
    candidate_failures: Failures
    times: Sequence[TimedBatches]

    @property
    def compared_rows(self) -> int:
        """The number of rows that both versions answered."""
        return sum(len(each.rows) for each in self.compared)

    @property
    def agreeing_rows(self) -> int:
        """The number of rows that agree in all outputs."""
        return sum(int(each.agrees().sum()) for each in self.compared)

    def refusal(self) -> str:
        """Return why the new version is refused, on one line; "" if it passes."""
        return "; ".join(self._reasons())

    def most_different(self, count: int) -> list[DifferentRow]:
        """Return rows that disagree, those that differ most first."""
        ids = [
            name
            for group in self.rows.groups
            for name in (group.request_ids or [""] * len(group))
        ]
        found = []
        for each in self.compared:
            for place in (~each.agrees()).nonzero()[0].tolist():
                difference, output = max(
                    (float(output.differences[place]), output.output)
                    for output in each.outputs
                    if not output.agrees[place]
                )
                number = int(each.rows[place])
                found.append(DifferentRow(number, ids[number], output, difference))
        return sorted(found, key=lambda row: (-row.difference, row.number))[:count]

    def _reasons(self) -> Iterator[str]:
        config = self.config
        if self.signature_changes and config.require_same_signature:
            yield self.signature_text()
        if not self.rows.groups:
            notes = "; ".join(self.rows.notes)
            yield f"there are no rows to compare on{notes and ': '}{notes}"
        failed, reason = self.candidate_failures
        if failed:
            yield f"fails on {failed} of {self.ran_rows} rows: {reason}"
        yield from self._disagreement()
        for each in self.times:
            if each.is_slower(config.max_slowdown):
                yield each.describe(config.max_slowdown)

    def _disagreement(self) -> Iterator[str]:
        """Yield how many rows disagree, the last time with the one that does most."""
        *before, last = [*self._disagreements()] or [""]
        yield from before
        if last:
            different = self.most_different(1)
            yield last + "".join(f"; most different: {d.describe()}" for d in different)

    def _disagreements(self) -> Iterator[str]:
        rows, config = self.compared_rows, self.config
        if not rows:
            return
        lost = sum(int(each.lost().sum()) for each in self.compared)
        if lost:
            yield f"answers NaN or infinity in {lost} of {rows} rows"
        # With max_difference, floats have to be near in all rows.
        far = 0
        if config.max_difference is not None:
            far = sum(_disagreeing(each, is_float=True) for each in self.compared)
            others = sum(_disagreeing(each, is_float=False) for each in self.compared)
            agreeing = rows - others
        else:
            agreeing = self.agreeing_rows
        if far:
            yield (
                f"differs by more than max_difference {config.max_difference:g} in "
                f"{far} of {rows} rows"
            )
        if agreeing / rows < config.min_agreement:
            yield (
                f"agrees in {agreeing} of {rows} rows ({100 * agreeing / rows:.3g} %, "
                f"min_agreement {config.min_agreement:g})"
            )

    def signature_text(self) -> str:
        """Return how the signature has changed; it has."""
        changes = list(self.signature_changes)
        if len(changes) > _MAX_CHANGES:
            changes[_MAX_CHANGES:] = [f"{len(changes) - _MAX_CHANGES} more changes"]
        return f"signature changed: {'; '.join(changes)}"


def _disagreeing(compared: Compared, *, is_float: bool) -> int:
    """Return how many rows disagree in an output of floats, or in another one."""
    agrees = [each.agrees for each in compared.outputs if each.is_float == is_float]
    rows = zip(*agrees, strict=True)
    return sum(not all(row) for row in rows)
