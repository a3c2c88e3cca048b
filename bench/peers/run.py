"""Measures step after step, one server at a time, and keeps what came out."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.environments import NotInstalled
from bench.loadtest.progress import Progress
from bench.peers import bare, drive
from bench.peers.cells import Bare, Campaign, Cell, best_setting
from bench.peers.loads import Load, Prepared
from bench.peers.models import prepare
from bench.peers.plan import Plan, Step, measures_bare
from bench.peers.set_ups import Setting
from bench.processes import DidNotStart, telling_line

_LONGEST = 300
# What a server that can't be measured raises; the run goes on with the others.
PROBLEMS = (
    *(NotInstalled, DidNotStart, AssertionError, OSError),
    subprocess.SubprocessError,
)


@dataclass
class Run:
    """One campaign on its way; models are made in `folder`."""

    plan: Plan
    campaign: Campaign
    folder: Path
    progress: Progress
    _left_s: float = 0.0
    _given_up: dict[tuple[str, str], str] = field(default_factory=dict)

    def measure(self) -> None:
        """Measure all that is planned; Ctrl-C ends it with what there is."""
        self._left_s = self.plan.total_s()
        try:
            for load in self.plan.loads:
                self._measure_load(load)
        except KeyboardInterrupt:
            self.campaign.stopped = True

    def _measure_load(self, load: Load) -> None:
        self.progress.say(f"{load.name}: making the model ...")
        prepared = prepare(load, self.folder / load.name)
        self._left_s -= self.plan.model_s(load)
        for steps in self.plan.rounds_of(load):
            for step in steps:
                self._measure_step(step, prepared)
            self._measure_bare(prepared, steps)

    def _measure_step(self, step: Step, prepared: Prepared) -> None:
        left_s = self._left_s - self.plan.step_s(step)
        key = (step.load.name, step.set_up.name)
        problem = self._given_up.get(key) or step.set_up.lacks()
        for setting in self._settings(step):
            if problem is None:
                problem = self._measure_setting(step, setting, prepared)
            else:
                self._skip(step, _cells(step, setting), problem)
        if problem is not None:
            self._given_up[key] = problem
        self._left_s = left_s

    def _settings(self, step: Step) -> Sequence[Setting]:
        """What is tried; in later rounds what was best in the first."""
        if step.round == 1:
            return step.settings
        best = best_setting(self._cells_of(step))
        known = [each for each in step.set_up.settings if each.title == best]
        return known or step.settings

    def _cells_of(self, step: Step) -> list[Cell]:
        wanted = (step.load.name, step.set_up.name)
        return [c for c in self.campaign.cells if (c.load, c.server) == wanted]

    def _measure_setting(
        self, step: Step, setting: Setting, prepared: Prepared
    ) -> str | None:
        """Start the server and measure each number of clients; a problem, or None."""
        missing = _cells(step, setting)
        begun = False
        try:
            with step.set_up.serve(prepared, setting) as server:
                while missing:
                    cell = missing[0]
                    self.progress.begin(_title(step, cell), self._left_s)
                    begun = True
                    timing = self.plan.timing(step.load, cell.clients)
                    seen = drive.measured(server, cell.clients, timing)
                    self._left_s -= sum(timing)
                    self._keep(missing.pop(0), **seen)
                    begun = False
        except PROBLEMS as error:
            problem = one_line(error)
            if begun:
                self._keep(missing.pop(0), problem=problem)
            self._skip(step, missing, problem)
            return problem
        return None

    def _skip(self, step: Step, cells: Sequence[Cell], problem: str) -> None:
        for cell in cells:
            self.progress.skip(_title(step, cell))
            self._keep(cell, problem=problem)

    def _keep(self, cell: Cell, **seen: Any) -> None:
        kept = replace(cell, **seen)
        self.campaign.cells.append(kept)
        self.progress.end(kept.problem or _told(kept), self._left_s)

    def _measure_bare(self, prepared: Prepared, steps: Sequence[Step]) -> None:
        """The engine alone, with batches of the sizes that this round's servers had."""
        mine = {step.set_up.name for step in steps if measures_bare(step)}
        served = [
            cell
            for cell in self.campaign.cells
            if cell.load == prepared.load.name
            and cell.server in mine
            and cell.round == steps[0].round
            and cell.batch_rows
        ]
        sizes = {cell.server: max(1, round(cell.batch_rows or 0)) for cell in served}
        if not sizes:
            return
        self.progress.say(f"{prepared.load.name}: the engine alone ...")
        wanted = sorted(set(sizes.values()))
        rates = bare.rows_a_second(prepared.file.parent, wanted, self.plan.bare_s())
        self.campaign.bare += [
            Bare(each.load, each.server, each.round, rows, each.rate, rates[rows])
            for each in served
            for rows in [sizes[each.server]]
        ]
        self._left_s -= self.plan.bare_round_s(steps)


def _cells(step: Step, setting: Setting) -> list[Cell]:
    """What a start of the server is to give, without figures."""
    return [
        Cell(step.load.name, step.set_up.name, setting.title, clients, step.round)
        for clients in step.load.clients
    ]


def _title(step: Step, cell: Cell) -> str:
    words = [cell.load, cell.server, cell.setting]
    words += [str(cell.clients)] if len(step.load.clients) > 1 else []
    words += [] if step.load.by_users else [f"round {cell.round}"]
    return ", ".join(word for word in words if word)


def _told(cell: Cell) -> str:
    told = f"{cell.rate:,.1f} requests/s, mean {cell.mean_s * 1000:.0f} ms"
    bad = cell.errors + cell.not_2xx + cell.wrong
    return told + (f", {bad} NOT RIGHT" if bad else "")


def one_line(error: BaseException) -> str:
    """What one of PROBLEMS has to say."""
    if isinstance(error, subprocess.CalledProcessError):
        said = telling_line(f"{error.stdout}\n{error.stderr or ''}")
        return f"{Path(error.cmd[0]).name} failed: {said}"
    if isinstance(error, AssertionError):
        # How long was waited, or that it ended; then its whole log.
        what, _, log = str(error).partition(": ")
        return f"{what}: {telling_line(log)}"[:_LONGEST]
    return telling_line(str(error) or type(error).__name__)[:_LONGEST]
