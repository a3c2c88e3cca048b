"""The table of a check: promises, limits, measured values, verdicts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.report import table
from testing.open_loop_requests import Outcome


@dataclass
class Report:
    """Notes on how a check measured, and its promises."""

    title: str
    notes: list[str] = field(default_factory=list)
    _promises: list[tuple[str, str, object, bool]] = field(default_factory=list)

    def promise(self, what: str, limit: str, measured: object, held: bool) -> None:
        """Add a promise."""
        self._promises.append((what, limit, measured, held))

    def none_of(
        self, what: str, bad: Iterable[object], total: int | None = None
    ) -> None:
        """Add the promise that there are no such requests, of `total`."""
        count = len(list(bad))
        measured = f"{count:,}" + ("" if total is None else f" of {total:,}")
        self.promise(what, "0", measured, not count)

    def broken(self) -> list[str]:
        """Return the promises that were not held."""
        return [what for what, *_, held in self._promises if not held]

    def markdown(self) -> str:
        """Return heading, notes and table."""
        rows = [
            (what, limit, measured, "yes" if held else "**no**")
            for what, limit, measured, held in self._promises
        ]
        lines = table(("promise", "limit", "measured", "held"), rows)
        return "\n".join([f"## {self.title}", "", *self.notes, "", *lines])


def tally(outcomes: Iterable[Outcome]) -> str:
    """Return how requests ended: 40 x 200, 2 x connection lost, 1 x 200 wrong."""
    found = Counter(
        f"{outcome.status or outcome.end.value}"
        f"{' wrong' if outcome.status and not outcome.right else ''}"
        for outcome in outcomes
    )
    return ", ".join(f"{count:,} x {end}" for end, count in found.most_common())
