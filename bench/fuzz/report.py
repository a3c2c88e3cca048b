"""What a run of fuzzing sent, what came back, and what was wrong."""

from collections import Counter
from dataclasses import dataclass, field

from bench.fuzz.watch import Watch


@dataclass
class Report:
    """Requests by source, and answers by status or gRPC code.

    `bad` counts requests that were not answered well, `good` the others. `watch` has
    what ran beside them.
    """

    bad: Counter[str] = field(default_factory=Counter)
    good: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    watch: Watch | None = None

    def add(self, other: "Report") -> None:
        """Add the report of a round."""
        self.bad += other.bad
        self.good += other.good
        self.statuses += other.statuses
        self.problems += other.problems

    def note(self, problem: str, sent: object) -> None:
        """Add a problem with what was sent."""
        self.problems.append(f"{problem}\n    to {str(sent)[:1500]}")

    def show(self, seconds: float) -> None:
        """Print all of it."""
        sources = ", ".join(f"{count} {name}" for name, count in self.bad.items())
        print(f"\n{self.bad.total()} malformed ({sources}) in {seconds:.0f} s")
        print(f"{self.good} more that were answered well")
        statuses = (f"{name}: {count}" for name, count in sorted(self.statuses.items()))
        print("statuses: " + ", ".join(statuses))
        print(self.watch)
        for problem in self.problems[:20]:
            print(f"PROBLEM {problem}")
