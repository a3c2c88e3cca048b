"""In which order what is measured, and how long that takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.peers.loads import Clients, Load
from bench.peers.set_ups import Setting, SetUp

# Guesses for the time that is left: to make a model, to start and end a server.
_MODEL_S = {"tiny": 8, "mnet": 15, "big": 15, "growth": 8}
_START_S = {"tiny": 4, "mnet": 6, "big": 7, "growth": 4}
_BARE_START_S = 5
# Seconds of a cell, and with thinking users by their number: one is always served
# alike; of 5 there are few requests, and what they wait for differs.
_SECONDS, _QUICK_S = 4.0, 2.0
_THINKING_S = {1: 8.0, 5: 30.0, 20: 20.0}
_WARM_UP_S, _USERS_WARM_UP_S = 2.0, 4.0


class Timing(NamedTuple):
    """Seconds of a cell: the warm-up, which is not counted, and the measurement."""

    warm_up_s: float
    measured_s: float


class Step(NamedTuple):
    """A server that is started once; `settings` are started one after the other."""

    load: Load
    round: int
    set_up: SetUp
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Plan:
    """What to measure; `seconds` is the time of each cell, None: chosen by load."""

    loads: Sequence[Load]
    set_ups: Sequence[SetUp]
    rounds: int
    seconds: float | None = None
    quick: bool = False

    def rounds_of(self, load: Load) -> list[list[Step]]:
        """The steps of each round."""
        return [
            list(self._round(load, number))
            for number in range(1, (1 if load.by_users else self.rounds) + 1)
        ]

    def _round(self, load: Load, number: int) -> Iterator[Step]:
        for each in self.set_ups:
            if load.name in each.loads:
                tries = number == 1 and not (load.by_users or self.quick)
                settings = each.settings if tries else each.settings[:1]
                yield Step(load, number, each, settings)

    def timing(self, load: Load, clients: Clients) -> Timing:
        """How long to warm up and to measure."""
        # Users: the longest think time and an answer, so that all are under way.
        warm_up_s = _USERS_WARM_UP_S if load.by_users else _WARM_UP_S
        if self.seconds is not None:
            return Timing(min(warm_up_s, self.seconds), self.seconds)
        measured_s = _THINKING_S.get(clients.count, _SECONDS)
        if not clients.thinks:
            measured_s = _SECONDS
        if self.quick:
            measured_s = min(measured_s, 4 * _QUICK_S if clients.thinks else _QUICK_S)
        return Timing(warm_up_s, measured_s)

    def bare_s(self) -> float:
        """Seconds to run a bare engine with one size of a batch."""
        return self.timing(self.loads[0], Clients(1)).measured_s / 2

    def step_s(self, step: Step) -> float:
        """How many seconds a step takes, about."""
        if step.set_up.lacks():
            return 0.0
        start_s = _START_S.get(step.load.name, 3)
        cells = (sum(self.timing(step.load, each)) for each in step.load.clients)
        return len(step.settings) * (start_s + sum(cells))

    def model_s(self, load: Load) -> float:
        """How many seconds it takes to make a load's model, about."""
        return _MODEL_S.get(load.name, 0)

    def bare_round_s(self, steps: Sequence[Step]) -> float:
        """How many seconds the bare engines of a round take, about."""
        measured = sum(map(measures_bare, steps))
        return _BARE_START_S + measured * self.bare_s() if measured else 0.0

    def total_s(self) -> float:
        """How many seconds all of it takes, about, without installing anything."""
        return sum(
            self.model_s(load)
            + sum(
                sum(map(self.step_s, steps)) + self.bare_round_s(steps)
                for steps in self.rounds_of(load)
            )
            for load in self.loads
        )

    def cells(self) -> int:
        """How many Cells there will be."""
        return sum(
            len(step.settings) * len(load.clients)
            for load in self.loads
            for steps in self.rounds_of(load)
            for step in steps
        )


def measures_bare(step: Step) -> bool:
    """Whether the step's engine is also measured without the server."""
    return step.set_up.ours and step.load.name in ("mnet", "big")
