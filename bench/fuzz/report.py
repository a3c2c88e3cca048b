"""What a run of fuzzing sent, what came back, and what was wrong."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.fuzz.watch import Watch
from testing.server import Server


@dataclass
class Report:
    """Requests by source, and answers by status or gRPC code.

    `bad` counts requests that were not answered well, `good` the others. `watch` has
    what ran beside them.
    """

    watch: Watch | None = None
    bad: Counter[str] = field(default_factory=Counter)
    good: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

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


def run(server: Server, requests: int, send_round: Callable[[Report], None]) -> Report:
    """Send rounds until so many requests were bad, and check the server beside.

    End at the first round in which something is wrong.
    """
    watch = Watch(server)
    report = Report(watch)
    with watch:
        while report.bad.total() < requests:
            send_round(report)
            watch.look(report.bad.total() >= requests / 10)
            done = f"{report.bad.total()} malformed"
            print(done, end="\r", file=sys.stderr, flush=True)
            if report.problems or watch.problems():
                break
    # Now, as Gunicorn has had the time to notice that a worker has ended.
    report.problems += watch.problems()
    return report
