"""Finds the fewest servers that hold a limit, and the most that one server holds."""

import math
from collections.abc import Callable
from typing import NamedTuple

from app.commands.plan.server import ServerPlan
from app.commands.plan.simulation import Load, Outcome, simulate

# Up to so many servers, all numbers are tried.
_FEW = 8
# No more servers are tried than are busy for this share of the time.
_LEAST_BUSY = 0.01
_MOST_USERS = 10_000_000
# The most that one server holds is found to this share of what it can run.
_PRECISION = 0.01
# The points of its curve, as shares of that.
_CURVE = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5)


class Fewest(NamedTuple):
    """Outcomes by servers; `servers` of them are the fewest that hold, None: none."""

    servers: int | None
    tried: dict[int, Outcome]


class OneServer(NamedTuple):
    """The largest load that one server holds, None: none, and its outcomes by load."""

    most: Load | None
    curve: dict[Load, Outcome]


class Search:
    """Simulations of one plan, each of which runs once."""

    def __init__(
        self,
        plan: ServerPlan,
        spread: str,
        limit_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Store the parts: `limit_s` is that of p95; `say` gets lines of progress."""
        self._plan = plan
        self._spread = spread
        self._limit_s = limit_s
        self._say = say
        self._known: dict[tuple[int, Load], Outcome] = {}

    def fewest(self, load: Load) -> Fewest:
        """Return the fewest servers that hold the limit under a load."""
        plan = self._plan
        guess = math.ceil(load.rate_at(self._limit_s) / plan.most_per_s)
        most = math.ceil(load.rate_at(plan.alone_s) * plan.alone_s / _LEAST_BUSY)
        # An open load has to be within what the servers can run.
        least = 0 if load.users else guess
        too_few = largest_that_holds(
            lambda servers: servers < least or not self._holds(servers, load),
            *(guess, max(most, 1), 0),
        )
        servers = None if too_few >= max(most, 1) else too_few + 1
        if servers is not None:
            # One more, for when one of them fails.
            shown = range(1 if servers <= _FEW else servers, servers + 2)
            for number in shown:
                self._outcome(number, load)
        tried = {n: seen for (n, each), seen in self._known.items() if each == load}
        return Fewest(servers, dict(sorted(tried.items())))

    def one_server(self, load: Load) -> OneServer:
        """Return the largest load of this kind that one server holds."""
        most_per_s = self._plan.most_per_s
        unit, most = 1.0, _MOST_USERS
        guess = round(most_per_s / load.of(1).rate_at(self._limit_s))
        if not load.users:
            # More than the server can run is of no interest.
            unit, most = _PRECISION * most_per_s, round(1 / _PRECISION)
            guess = most // 2
        largest = largest_that_holds(
            lambda number: self._holds(1, load.of(unit * number)),
            *(guess, most, _PRECISION),
        )
        if not largest:
            return OneServer(None, {})
        loads = {load.of(unit * largest * share): None for share in _CURVE}
        curve = {each: self._outcome(1, each) for each in loads}
        return OneServer(load.of(unit * largest), curve)

    def _holds(self, servers: int, load: Load) -> bool:
        return self._outcome(servers, load).holds(self._limit_s)

    def _outcome(self, servers: int, load: Load) -> Outcome:
        if (servers, load) not in self._known:
            noun = "server" if servers == 1 else "servers"
            self._say(f"simulating {load} on {servers:,} {noun} ...")
            self._known[servers, load] = simulate(
                self._plan, servers, load, self._spread, self._limit_s
            )
        return self._known[servers, load]


def largest_that_holds(
    holds: Callable[[int], bool], guess: int, most: int, precision: float
) -> int:
    """Return the largest number up to `most` that holds, as all smaller ones do.

    The next larger one that is known not to hold is at most a share of `precision`
    above it, or is the next number. 0 holds.
    """
    low, high, number = 0, most + 1, min(max(guess, 1), most)
    while high - low > max(1, precision * low):
        if holds(number):
            low = number
        else:
            high = number
        number = min(2 * low, most) if high > most else (low + high) // 2
    return low
