"""Measure the servers by turns, one at a time, and collect the cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench import load
from bench.campaign import Campaign
from bench.figures import Cell, Timing, best_setting
from bench.peers import bare
from bench.peers.loads import LOADS, Load, prepare
from bench.peers.servers import BASKET, Setting, SetUp
from bench.prepared import Prepared

_MEASURED_S, _QUICK_S = 4.0, 1.5
# So many times as long for users that think: they send few requests.
_THINKING = 6
# Users need the longest think time and an answer until all have begun.
_WARM_UP_S, _USERS_WARM_UP_S = 2.0, 4.0
_BARE_LOADS = ("mnet", "big")


@dataclass(frozen=True)
class Plan:
    """What to measure; `seconds` per cell, None: chosen by load."""

    loads: Sequence[Load]
    set_ups: Sequence[SetUp]
    rounds: int
    seconds: float | None = None
    quick: bool = False

    def rounds_of(self, wanted: Load) -> range:
        """Return the numbers of a load's rounds."""
        return range(1, 2 if wanted.by_users else self.rounds + 1)

    def set_ups_of(self, wanted: Load) -> list[SetUp]:
        """Return the servers that are measured with a load."""
        return [each for each in self.set_ups if wanted.name in each.loads]

    def settings(self, wanted: Load, each: SetUp, number: int) -> Sequence[Setting]:
        """Return the settings of round `number`: only the first tries all."""
        tries_all = number == 1 and not (wanted.by_users or self.quick)
        return each.settings if tries_all else each.settings[:1]

    def timing(self, cell: Cell) -> Timing:
        """Return how long to warm up and to measure."""
        thinks = cell.clients.thinks
        warm_up_s = _USERS_WARM_UP_S if LOADS[cell.load].by_users else _WARM_UP_S
        if self.seconds is not None:
            return Timing(min(warm_up_s, self.seconds), self.seconds)
        measured_s = _QUICK_S if self.quick else _MEASURED_S
        return Timing(warm_up_s, measured_s * _THINKING if thinks else measured_s)

    def cells(self) -> int:
        """Return the number of cells."""
        return sum(
            len(self.settings(wanted, each, number)) * len(wanted.clients)
            for wanted in self.loads
            for number in self.rounds_of(wanted)
            for each in self.set_ups_of(wanted)
        )


@dataclass(frozen=True)
class Bare:
    """Rows per second of a server and of its engine alone, with equal batches."""

    load: str
    server: str
    round: int
    rows: int
    served: float
    bare: float


@dataclass
class Comparison(Campaign):
    """All figures of one run, of at most `rounds` rounds."""

    rounds: int = 1
    bare: list[Bare] = field(default_factory=list)

    def measure_all(self, plan: Plan, folder: Path) -> None:
        """Measure what `plan` says; models are made in `folder`.

        Ctrl-C ends it with what has been measured.
        """
        with self.until_interrupted():
            for wanted in plan.loads:
                print(f"{wanted.name}: making the model ...", flush=True)
                prepared = prepare(wanted, folder / wanted.name)
                for number in plan.rounds_of(wanted):
                    for each in plan.set_ups_of(wanted):
                        self._measure_server(plan, wanted, each, number, prepared)
                    if wanted.name in _BARE_LOADS:
                        self._measure_bare(wanted, number, prepared)

    def _measure_server(
        self, plan: Plan, wanted: Load, each: SetUp, number: int, prepared: Prepared
    ) -> None:
        """Measure a server with its settings; with the best one from round 2 on."""
        name = (wanted.name, each.title)
        mine = [cell for cell in self.cells if (cell.load, cell.server) == name]
        problem = next((cell.problem for cell in mine if cell.problem), None)
        best = best_setting(mine)
        settings = [setting for setting in each.settings if setting.title == best]
        for setting in settings or plan.settings(wanted, each, number):
            cells = [Cell(*name, setting.title, n, number) for n in wanted.clients]
            if problem is not None:
                self.give_up(cells, problem)
                continue
            serve = partial(each.serve, prepared, setting)
            drive = load.by_users if wanted.by_users else load.by_wrk
            problem = self.measure(serve, cells, plan.timing, drive)

    def _measure_bare(self, wanted: Load, number: int, prepared: Prepared) -> None:
        """Measure the engine alone with this round's mean batch of Basket."""
        mine = (wanted.name, BASKET, number)
        for cell in self.cells:
            rows = round(cell.seen.batch_rows or 0)
            if (cell.load, cell.server, cell.round) == mine and rows:
                print(f"{cell.load}: the engine alone ...", flush=True)
                alone = bare.rows_per_second(prepared.file.parent, rows)
                self.bare.append(Bare(*mine, rows, cell.seen.rate, alone))
