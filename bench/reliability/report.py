"""The table of a check: promises, limits, measured values, verdicts."""

from collections import Counter
from collections.abc import Collection, Iterable

from bench.report import table
from testing.open_loop_requests import Outcome

# Values from which no decimals are shown.
_LARGE = 100


class Report:
    """Notes on how a check measured, and its promises."""

    def __init__(self, title: str, *notes: str) -> None:
        self.title, self.notes = title, list(notes)
        self._promises: list[tuple[str, str, object, bool]] = []

    def promise(self, what: str, limit: str, measured: object, held: bool) -> None:
        """Add a promise."""
        self._promises.append((what, limit, measured, held))

    def at_most(
        self, what: str, value: float, limit: float, unit: str = "", note: str = ""
    ) -> None:
        """Add the promise that a value is at most its limit; `note` explains it."""
        measured = f"{_shown(value)}{unit}{note}"
        self.promise(what, f"<= {_shown(limit)}{unit}", measured, value <= limit)

    def none_of(self, what: str, bad: Collection[object], total: int = 0) -> None:
        """Add the promise that there are no such requests, of `total`."""
        of = f" of {total:,}" if total else ""
        self.promise(what, "0", f"{len(bad):,}{of}", not bad)

    def all_good(self, what: str, outcomes: Collection[Outcome]) -> None:
        """Add the promise that all requests were answered right."""
        bad = [one for one in outcomes if not one.is_good()]
        self.none_of(what, bad, len(outcomes))

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


def _shown(value: float) -> str:
    is_whole = float(value).is_integer() or value >= _LARGE
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def tally(outcomes: Iterable[Outcome]) -> str:
    """Return how requests ended: 40 x 200, 2 x connection lost, 1 x 200 wrong."""
    found = Counter(
        f"{outcome.status or outcome.end.value}"
        f"{' wrong' if outcome.status and not outcome.right else ''}"
        for outcome in outcomes
    )
    return ", ".join(f"{count:,} x {end}" for end, count in found.most_common())
