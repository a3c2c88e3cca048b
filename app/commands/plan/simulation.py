"""Simulates servers under load, and says what clients see."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from app.commands.plan.server import PlannedJob, ServerPlan, SimulatedServer
from app.commands.plan.timeline import Timeline

SPREADS = ("random", "round-robin", "least-of-two")
# Requests/s from which texts show no decimals.
_LARGE_RATE = 100
# More servers or users than these are simulated as so many, with their share.
_MOST_SERVERS, _MOST_USERS = 16, 50_000
# Requests of each server in a step.
_OF_A_SERVER = 500
# Requests are added in steps, at least so many of them and at most so many requests.
_STEP, _LEAST_STEPS, _MOST_REQUESTS = 2000, 5, 200_000
# Until p95 is known to this share of itself; where it is several times as far from the
# limit as it is uncertain, until it is known to the second share.
_ENOUGH, _ENOUGH_FAR, _FAR = 0.01, 0.03, 3
# A fifth of the steps comes before a steady state. The others are cut into parts, whose
# scatter says how well p95 is known; Student's t of that many, for 95 % confidence.
_PARTS, _STUDENTS_T = 20, 2.093


@dataclass(frozen=True)
class Load:
    """What all servers get: `users` that think for some seconds, or `rate` requests/s.

    `users` is 0 for an open load, whose requests come at random (Poisson). `think_s`
    are the least and the most seconds between an answer and a user's next request.
    """

    users: int = 0
    think_s: tuple[float, float] = (0.0, 0.0)
    rate: float = 0.0

    def __str__(self) -> str:
        if not self.users:
            return f"{self.rate:,.{0 if self.rate >= _LARGE_RATE else 2}f} requests/s"
        return f"{self.users:,} {'user' if self.users == 1 else 'users'}"

    @property
    def amount(self) -> float:
        """The users, or the requests per second."""
        return self.users or self.rate

    def of(self, amount: float) -> "Load":
        """Return the same kind of load with other users, or another rate."""
        if self.users:
            return replace(self, users=max(round(amount), 1))
        return replace(self, rate=amount)

    def rate_at(self, response_s: float) -> float:
        """Return the requests per second at a mean response time: Little's law."""
        if not self.users:
            return self.rate
        return self.users / (sum(self.think_s) / 2 + response_s)


class Outcome(NamedTuple):
    """What clients see: times in seconds, of the answered requests.

    `busy` is the share of the time in which a batch runs, `refused` that of the
    requests without an answer. `uncertainty` is how far p95 may be off, as a share of
    it, with 95 % confidence.
    """

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    rate: float
    batch_rows: float
    busy: float
    refused: float
    uncertainty: float

    def holds(self, p95_s: float) -> bool:
        """Return whether 95 % of the answers take no longer, and none is refused."""
        return not self.refused and self.p95_s <= p95_s

    def is_known(self, limit_s: float) -> bool:
        """Return whether p95 is known well enough to tell it from a limit."""
        if self.uncertainty <= _ENOUGH:
            return True
        if self.p95_s > limit_s:
            return self.p95_s * (1 - _FAR * self.uncertainty) > limit_s
        is_far = self.p95_s * (1 + _FAR * self.uncertainty) < limit_s
        return is_far and self.uncertainty <= _ENOUGH_FAR


def simulate(
    plan: ServerPlan, servers: int, load: Load, spread: str, limit_s: float
) -> Outcome:
    """Return what the load's clients see of so many servers.

    p95 is known best near `limit_s`. The same arguments give the same outcome.
    """
    few = min(servers, _MOST_SERVERS, _MOST_USERS * servers // max(load.users, 1))
    few = max(few, 1)
    run = _Run(plan, few, load.of(load.amount * few / servers), spread)
    while True:
        run.step()
        if run.steps >= _LEAST_STEPS:
            outcome = run.outcome(servers / few)
            if outcome.is_known(limit_s) or run.ended >= _MOST_REQUESTS:
                return outcome


class _Totals(NamedTuple):
    """What all servers had done at a time: rows and batches run, and for how long."""

    at_s: float
    requests: int
    rows: int
    batches: int
    busy_s: float


class _Run:
    """A simulation that can be advanced step by step."""

    def __init__(self, plan: ServerPlan, servers: int, load: Load, spread: str) -> None:
        self._load = load
        self._chance = random.Random(1)  # noqa: S311
        self._timeline = Timeline()
        self._servers = [
            SimulatedServer(plan, self._timeline, self._done) for _ in range(servers)
        ]
        self._choose = _chooser(spread, self._servers, self._chance)
        # In the order in which requests ended; infinite without an answer.
        self._took_s: list[float] = []
        self._totals = [self._now()]
        self._step_ends = 0
        if load.users:
            # In no phase with each other, or they would keep the one they begin with.
            for user in range(load.users):
                at = self._chance.uniform(0, load.think_s[1])
                self._timeline.at(at, self._send, user)
        else:
            self._timeline.at(0.0, self._arrive)

    @property
    def steps(self) -> int:
        """The number of steps so far."""
        return len(self._totals) - 1

    @property
    def ended(self) -> int:
        """The number of requests that were answered or refused."""
        return len(self._took_s)

    def step(self) -> None:
        """Go on until the next step's requests have ended."""
        # Each user, but of very many, and each server has a part in every step.
        users = min(self._load.users, _MOST_USERS // _LEAST_STEPS)
        requests = max(_STEP, users, _OF_A_SERVER * len(self._servers))
        self._step_ends = self.ended + requests
        self._timeline.run()
        self._totals.append(self._now())

    def outcome(self, times: float) -> Outcome:
        """Return what clients saw; all servers are `times` as many."""
        first, last = self._totals[self.steps // _LEAST_STEPS], self._totals[-1]
        for_s = last.at_s - first.at_s
        took_s = np.array(self._took_s[first.requests :])
        answered_s = took_s[np.isfinite(took_s)]
        times_s = [math.inf] * 4
        if len(answered_s):
            times_s = np.percentile(answered_s, (50, 95, 99)).tolist()
            times_s.insert(0, float(np.mean(answered_s)))
        mean_s, p50_s, p95_s, p99_s = times_s
        return Outcome(
            *(mean_s, p50_s, p95_s, p99_s, times * len(answered_s) / for_s),
            (last.rows - first.rows) / max(last.batches - first.batches, 1),
            (last.busy_s - first.busy_s) / for_s / len(self._servers),
            1 - len(answered_s) / len(took_s),
            _uncertainty(answered_s),
        )

    def _now(self) -> _Totals:
        sums = [
            sum(getattr(server, name) for server in self._servers)
            for name in ("rows", "batches", "busy_s")
        ]
        return _Totals(self._timeline.now, self.ended, *sums)

    def _think(self, user: int) -> None:
        """Have a user send a request after the think time."""
        after_s = self._chance.uniform(*self._load.think_s)
        self._timeline.at(self._timeline.now + after_s, self._send, user)

    def _arrive(self) -> None:
        """Send a request of an open load, and have the next one follow."""
        self._send(-1)
        after_s = self._chance.expovariate(self._load.rate)
        self._timeline.at(self._timeline.now + after_s, self._arrive)

    def _send(self, user: int) -> None:
        self._choose().receive(PlannedJob(self._timeline.now, user))

    def _done(self, request: PlannedJob, is_result: bool) -> None:
        took_s = self._timeline.now - request.sent_at
        self._took_s.append(took_s if is_result else math.inf)
        if len(self._took_s) == self._step_ends:
            self._timeline.stop()
        if self._load.users:
            self._think(request.user)


def _chooser(
    spread: str, servers: list[SimulatedServer], chance: random.Random
) -> Callable[[], SimulatedServer]:
    """Return a function that chooses the server of the next request."""
    if len(servers) == 1:
        return lambda: servers[0]
    if spread == "round-robin":
        return itertools.cycle(servers).__next__
    if spread == "random":
        return lambda: chance.choice(servers)

    def least_of_two() -> SimulatedServer:
        one, other = chance.sample(servers, 2)
        return one if one.unanswered <= other.unanswered else other

    return least_of_two


def _uncertainty(took_s: npt.NDArray[np.float64]) -> float:
    """Return how far p95 may be off, as a share of it, by the scatter of its parts."""
    if len(took_s) < _PARTS:
        return 0.0
    # Two calls, since one for each part takes three times as long: the first parts
    # have one more where they can't be equal.
    size, longer = divmod(len(took_s), _PARTS)
    parts = np.split(took_s, [longer * (size + 1)])
    rows = zip(parts, (longer, _PARTS - longer), strict=True)
    p95_s = [np.percentile(part.reshape(n, -1), 95, axis=1) for part, n in rows if n]
    half_s = _STUDENTS_T * np.std(np.concatenate(p95_s), ddof=1) / math.sqrt(_PARTS)
    return float(half_s / np.percentile(took_s, 95))
