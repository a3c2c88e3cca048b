"""Measure the servers by turns, one at a time, and collect the cells."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import load
from bench.campaign import Campaign
from bench.figures import Cell, Timing, best_setting
from bench.peers import bare
from bench.peers.loads import LOADS, Load, prepare
from bench.peers.servers import Setting, SetUp
from bench.prepared import Prepared

# Measured seconds, and those of thinking users by their number: few users send few
# requests, and the response times of five differ.
_MEASURED_S, _QUICK_S = 4.0, 2.0
_THINKING_S = {1: 8.0, 5: 30.0, 20: 20.0}
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
        clients = cell.clients
        by_users = LOADS[cell.load].by_users
        warm_up_s = _USERS_WARM_UP_S if by_users else _WARM_UP_S
        if self.seconds is not None:
            return Timing(min(warm_up_s, self.seconds), self.seconds)
        measured_s = _THINKING_S[clients.count] if clients.thinks else _MEASURED_S
        if self.quick:
            measured_s = min(measured_s, _QUICK_S * (4 if clients.thinks else 1))
        return Timing(warm_up_s, measured_s)

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

    def as_json(self) -> dict[str, Any]:
        """Return everything for JSON."""
        names = ("cells", "bare")
        figures = {name: list(map(asdict, getattr(self, name))) for name in names}
        return {"header": self.header, "rounds": self.rounds, **figures}


@dataclass
class Run:
    """Fills `campaign` with what `plan` says; models are made in `folder`."""

    plan: Plan
    campaign: Comparison
    folder: Path
    _given_up: dict[tuple[str, str], str] = field(default_factory=dict)

    def measure(self) -> None:
        """Measure everything; Ctrl-C ends it with what has been measured."""
        with self.campaign.until_interrupted():
            for wanted in self.plan.loads:
                self.campaign.progress.say(f"{wanted.name}: making the model ...")
                prepared = prepare(wanted, self.folder / wanted.name)
                for number in self.plan.rounds_of(wanted):
                    for each in self.plan.set_ups_of(wanted):
                        for setting in self._settings(wanted, each, number):
                            self._measure(wanted, each, setting, number, prepared)
                    self._measure_bare(wanted, number, prepared)

    def _settings(self, wanted: Load, each: SetUp, number: int) -> Sequence[Setting]:
        """Return those of the plan, but the best one from the second round on."""
        mine = [
            cell
            for cell in self.campaign.cells
            if (cell.load, cell.server) == (wanted.name, each.name)
        ]
        best = best_setting(mine)
        found = [setting for setting in each.settings if setting.title == best]
        return found or self.plan.settings(wanted, each, number)

    def _measure(
        self,
        wanted: Load,
        each: SetUp,
        setting: Setting,
        number: int,
        prepared: Prepared,
    ) -> None:
        """Start the server and measure it with each number of clients."""
        cells = [
            Cell(wanted.name, each.name, setting.title, clients, number)
            for clients in wanted.clients
        ]
        key = (wanted.name, each.name)
        if key in self._given_up:
            self.campaign.give_up(cells, self._given_up[key])
            return
        drive = load.by_users if wanted.by_users else load.by_wrk
        server = each.serve(prepared, setting)
        problem = self.campaign.measure(server, cells, self.plan.timing, drive)
        if problem is not None:
            self._given_up[key] = problem

    def _measure_bare(self, wanted: Load, number: int, prepared: Prepared) -> None:
        """Measure the engine alone with this round's mean batch of Basket."""
        if wanted.name not in _BARE_LOADS:
            return
        mine = (wanted.name, "gunicorn", number)
        for cell in self.campaign.cells:
            rows = round(cell.seen.batch_rows or 0)
            if (cell.load, cell.server, cell.round) == mine and rows:
                self.campaign.progress.say(f"{cell.load}: the engine alone ...")
                seconds = (self.plan.seconds or _MEASURED_S) / 2
                alone = bare.rows_per_second(prepared.file.parent, rows, seconds)
                self.campaign.bare.append(Bare(*mine, rows, cell.seen.rate, alone))
