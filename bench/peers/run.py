"""Measure the servers by turns, one at a time, and collect the cells."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import load
from bench.figures import Cell, Clients, Seen, Timing, best_setting
from bench.peers import bare
from bench.peers.loads import Load, prepare
from bench.peers.others import Setting
from bench.peers.servers import SetUp
from bench.prepared import Prepared
from bench.report import PROBLEMS, Progress, one_line

# Rough estimate of the time to start and stop a server.
_START_S = 6
# Measured seconds, and those of thinking users by their number: few users send few
# requests, and the response times of five differ.
_MEASURED_S, _QUICK_S = 4.0, 2.0
_THINKING_S = {1: 8.0, 5: 30.0, 20: 20.0}
# Users need the longest think time and an answer until all have begun.
_WARM_UP_S, _USERS_WARM_UP_S = 2.0, 4.0
_BARE_LOADS = ("mnet", "big")


class Step(NamedTuple):
    """A server in one round; it is started once with each of `settings`."""

    load: Load
    round: int
    set_up: SetUp
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Plan:
    """What to measure; `seconds` per cell, None: chosen by load."""

    loads: Sequence[Load]
    set_ups: Sequence[SetUp]
    rounds: int
    seconds: float | None = None
    quick: bool = False

    def rounds_of(self, wanted: Load) -> list[list[Step]]:
        """Return the steps of each round."""
        rounds = 1 if wanted.by_users else self.rounds
        return [list(self._round(wanted, number + 1)) for number in range(rounds)]

    def _round(self, wanted: Load, number: int) -> Iterator[Step]:
        for each in self.set_ups:
            if wanted.name in each.loads:
                tries_all = number == 1 and not (wanted.by_users or self.quick)
                settings = each.settings if tries_all else each.settings[:1]
                yield Step(wanted, number, each, settings)

    def timing(self, wanted: Load, clients: Clients) -> Timing:
        """Return how long to warm up and to measure."""
        warm_up_s = _USERS_WARM_UP_S if wanted.by_users else _WARM_UP_S
        if self.seconds is not None:
            return Timing(min(warm_up_s, self.seconds), self.seconds)
        measured_s = _THINKING_S[clients.count] if clients.thinks else _MEASURED_S
        if self.quick:
            measured_s = min(measured_s, _QUICK_S * (4 if clients.thinks else 1))
        return Timing(warm_up_s, measured_s)

    def steps(self) -> list[Step]:
        """Return the steps of all loads and rounds."""
        rounds = [each for wanted in self.loads for each in self.rounds_of(wanted)]
        return [step for steps in rounds for step in steps]

    def cells(self) -> int:
        """Return the number of cells."""
        return sum(len(each.settings) * len(each.load.clients) for each in self.steps())

    def total_s(self) -> float:
        """Estimate the seconds for all of it, without installing peers."""
        return sum(
            len(step.settings)
            * (
                _START_S
                + sum(sum(self.timing(step.load, n)) for n in step.load.clients)
            )
            for step in self.steps()
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
class Campaign:
    """All figures of one run; `header` is its command, date and machine."""

    header: str
    rounds: int
    cells: list[Cell] = field(default_factory=list)
    bare: list[Bare] = field(default_factory=list)
    stopped: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


@dataclass
class Run:
    """Fills `campaign` with what `plan` says; models are made in `folder`."""

    plan: Plan
    campaign: Campaign
    folder: Path
    progress: Progress
    _given_up: dict[tuple[str, str], str] = field(default_factory=dict)

    def measure(self) -> None:
        """Measure everything; Ctrl-C ends it with what has been measured."""
        try:
            for wanted in self.plan.loads:
                self._measure_load(wanted)
        except KeyboardInterrupt:
            self.campaign.stopped = True

    def _measure_load(self, wanted: Load) -> None:
        self.progress.say(f"{wanted.name}: making the model ...")
        prepared = prepare(wanted, self.folder / wanted.name)
        for steps in self.plan.rounds_of(wanted):
            for step in steps:
                for setting in self._settings(step):
                    self._measure_setting(step, setting, prepared)
            self._measure_bare(prepared, steps[0] if steps else None)

    def _settings(self, step: Step) -> Sequence[Setting]:
        """Return all settings in the first round, then the one with the best rate."""
        if step.round == 1:
            return step.settings
        mine = [
            cell
            for cell in self.campaign.cells
            if (cell.load, cell.server) == (step.load.name, step.set_up.name)
        ]
        best = best_setting(mine)
        return [s for s in step.set_up.settings if s.title == best] or step.settings

    def _measure_setting(
        self, step: Step, setting: Setting, prepared: Prepared
    ) -> None:
        """Start the server and measure it with each number of clients."""
        key = (step.load.name, step.set_up.name)
        left = list(step.load.clients)
        problem = self._given_up.get(key) or step.set_up.missing()
        if problem is None:
            try:
                with step.set_up.serve(prepared, setting) as target:
                    while left:
                        self._measure_cell(step, setting, target, left[0])
                        del left[0]
            except PROBLEMS as error:
                problem = one_line(error)
        if problem is not None:
            self._given_up[key] = problem
            for clients in left:
                self._keep(replace(_cell(step, setting, clients), problem=problem))

    def _measure_cell(
        self, step: Step, setting: Setting, target: load.Target, clients: Clients
    ) -> None:
        cell = _cell(step, setting, clients)
        timing = self.plan.timing(step.load, clients)
        self.progress.begin(_title(cell), sum(timing))
        drive = load.by_users if step.load.by_users else load.by_wrk
        self._keep(replace(cell, seen=drive(target, clients, timing)))

    def _keep(self, cell: Cell) -> None:
        self.campaign.cells.append(cell)
        self.progress.end(_title(cell), cell.problem or cell.seen)

    def _measure_bare(self, prepared: Prepared, step: Step | None) -> None:
        """Measure the engine alone with this round's mean batch of Basket."""
        if step is None or step.load.name not in _BARE_LOADS:
            return
        for cell in self.campaign.cells:
            is_mine = (cell.load, cell.round) == (step.load.name, step.round)
            rows = round(cell.seen.batch_rows or 0)
            if is_mine and cell.server == "gunicorn" and rows:
                self.progress.say(f"{cell.load}: the engine alone ...")
                seconds = (self.plan.seconds or _MEASURED_S) / 2
                rates = bare.rows_per_second(prepared.file.parent, [rows], seconds)
                found = Bare(
                    *(cell.load, cell.server, cell.round),
                    *(rows, cell.seen.rate, rates[rows]),
                )
                self.campaign.bare.append(found)


def _cell(step: Step, setting: Setting, clients: Clients) -> Cell:
    return Cell(
        *(step.load.name, step.set_up.name, setting.title, clients, step.round), Seen()
    )


def _title(cell: Cell) -> str:
    words = (cell.load, cell.server, cell.setting, str(cell.clients))
    return ", ".join(word for word in words if word) + f", round {cell.round}"
