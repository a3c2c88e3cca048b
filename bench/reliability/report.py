"""What a check says: its promises, what was measured, and whether they were held."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from testing.open_loop_requests import Outcome


@dataclass(frozen=True)
class Promise:
    """One line: what is promised, the limit, what was measured, and the verdict."""

    what: str
    limit: str
    measured: str
    held: bool


@dataclass
class Report:
    """A check's promises, and lines that say how it was measured."""

    title: str
    notes: list[str] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)

    def promise(self, what: str, limit: str, measured: object, *, held: bool) -> None:
        """Add a promise."""
        self.promises.append(Promise(what, limit, str(measured), held))

    def broken(self) -> list[str]:
        """What was promised and not held."""
        return [promise.what for promise in self.promises if not promise.held]

    def markdown(self) -> str:
        """A small table under a heading."""
        lines = [f"## {self.title}", "", *self.notes, ""]
        lines += ["| promise | limit | measured | held |", "|---|---|---|---|"]
        lines += [
            f"| {each.what} | {each.limit} | {each.measured} | "
            f"{'yes' if each.held else '**no**'} |"
            for each in self.promises
        ]
        return "\n".join(lines)


def tally(outcomes: Iterable[Outcome]) -> str:
    """How requests ended, in words: 40 x 200, 2 x connection lost, 1 x 200 wrong."""
    found = Counter(
        f"{outcome.status or outcome.end.value}"
        f"{' wrong' if outcome.status and not outcome.right else ''}"
        for outcome in outcomes
    )
    return ", ".join(f"{count:,} x {end}" for end, count in found.most_common())
