"""Measures set-up after set-up, and collects what came out."""

import re
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from bench.loadtest.analysis import figures_of
from bench.loadtest.basket import ServerProblem, running, why_not_ready
from bench.loadtest.locust_child import Job, drive
from bench.loadtest.measurement import Campaign, Cell, Setup
from bench.loadtest.payload import THINK_S, PayloadError, basket_payload
from bench.loadtest.progress import Progress
from bench.loadtest.setups import Timing, timing_of
from testing.server import Server, workers_in

# Guesses for the time that is left: to start a server, Locust, and to draw.
_START_SERVER_S = 3
_START_LOCUST_S = 1.5
_REPORT_S = 5
_PROBES = 3
# What a row takes, as long as nothing was measured.
_FIRST_ROW_S = 0.3


@dataclass(frozen=True)
class Plan:
    """What to measure: `model` is the folder of the only model in its parent.

    `seconds` and `warm_up_s`, where given, stand instead of the chosen times;
    a server that is not ready after `ready_within_s` seconds is given up.
    """

    setups: Sequence[Setup]
    users: Sequence[int]
    model: Path
    quick: bool = False
    seconds: float | None = None
    warm_up_s: float | None = None
    ready_within_s: float = 300


@dataclass
class Run:
    """One campaign on its way; `stopped` may be set from outside at any time."""

    plan: Plan
    campaign: Campaign
    raw: Path
    progress: Progress
    stopped: threading.Event = field(default_factory=threading.Event)
    row_s: float | None = None

    def measure(self) -> None:
        """Measure all set-ups, or as many as there are before `stopped`."""
        for place, setup in enumerate(self.plan.setups):
            if self.stopped.is_set():
                break
            self.progress.say(f"starting {setup.name} ...")
            try:
                with running(
                    setup,
                    self.plan.model,
                    ready_within_s=self.plan.ready_within_s,
                    stopped=self.stopped,
                ) as server:
                    self._measure_setup(place, setup, server)
            except ServerProblem as error:
                self._give_up(place, setup, str(error))
        self.campaign.stopped = self.stopped.is_set()

    def _measure_setup(self, place: int, setup: Setup, server: Server) -> None:
        if self.row_s is None and not self.stopped.is_set():
            self.row_s = _row_seconds(server)
        for at, users in enumerate(self.plan.users):
            if self.stopped.is_set():
                return
            if server.process.poll() is not None:
                raise ServerProblem(why_not_ready(server))
            self.progress.begin(_title(setup, users), self._left_s(place, at))
            cell = self._measure_cell(setup, users, server)
            if cell.samples or not self.stopped.is_set():
                self.campaign.cells.append(cell)
            self.progress.end(self._told(cell), self._left_s(place, at + 1))

    def _measure_cell(self, setup: Setup, users: int, server: Server) -> Cell:
        timing = self._timing(setup, users)
        job = Job(
            host=f"http://127.0.0.1:{server.port}",
            user_class="SelfCheckout",
            users=users,
            warm_up_s=timing.warm_up_s,
            measured_s=timing.measured_s,
            file=str(self.raw / f"{_slug(setup.name)}-{users}-users.csv"),
        )
        measured_s, samples, problem = drive(job, self.stopped, self.progress.tick)
        if self.stopped.is_set() and measured_s < timing.measured_s:
            problem = f"stopped after {measured_s:.0f} of {timing.measured_s:.0f} s"
        return Cell(setup.name, users, THINK_S, measured_s, samples, problem)

    def _give_up(self, place: int, setup: Setup, problem: str) -> None:
        """Put `problem` into the set-up's rows that are missing."""
        done = {cell.users for cell in self.campaign.cells if cell.setup == setup.name}
        for at, users in enumerate(self.plan.users):
            if users not in done:
                self.progress.skip(_title(setup, users))
                cell = Cell(setup.name, users, THINK_S, 0, problem=problem)
                self.campaign.cells.append(cell)
                self.progress.end(problem, self._left_s(place, at + 1))

    def _timing(self, setup: Setup, users: int) -> Timing:
        chosen = timing_of(
            setup,
            users,
            row_s=self.row_s or _FIRST_ROW_S,
            # Simulated workers have a device each, real ones share what there is.
            devices=workers_in(setup.arguments) if self.campaign.simulated else 1,
            quick=self.plan.quick,
        )
        warm_up_s, measured_s = self.plan.warm_up_s, self.plan.seconds
        return Timing(
            chosen.warm_up_s if warm_up_s is None else warm_up_s,
            chosen.measured_s if measured_s is None else measured_s,
        )

    def _left_s(self, place: int, at: int) -> float:
        """Seconds from before cell `at` of set-up `place` to the end."""
        setups = self.plan.setups
        rest = [(setups[place], users) for users in self.plan.users[at:]]
        rest += [(each, n) for each in setups[place + 1 :] for n in self.plan.users]
        cells_s = sum(sum(self._timing(*cell)) + _START_LOCUST_S for cell in rest)
        return cells_s + _START_SERVER_S * (len(setups) - place - 1) + _REPORT_S

    def _told(self, cell: Cell) -> str:
        figures = figures_of(cell, simulated=self.campaign.simulated)
        told = [] if cell.problem is None else [cell.problem]
        if figures.mean_s is not None and figures.p95_s is not None:
            told.append(f"mean {figures.mean_s:.3f} s, p95 {figures.p95_s:.3f} s")
            told.append(f"{figures.rate:.2f} requests/s")
        return ", ".join(told)


def _row_seconds(server: Server) -> float | None:
    """How long a row alone takes, from a few requests; None where they fail."""
    try:
        ready = server.request("GET", "/readyz").json()
        payload = basket_payload(ready)
        headers = {"Content-Type": payload.content_type}
        times = []
        for _ in range(_PROBES):
            began_at = time.monotonic()
            reply = server.request("POST", "/predict", payload.body(), headers)
            if reply.status != HTTPStatus.OK:
                return None
            times.append(time.monotonic() - began_at)
    except (OSError, ValueError, PayloadError):
        return None
    return statistics.median(times)


def _title(setup: Setup, users: int) -> str:
    return f"{setup.name}, {users} user{'' if users == 1 else 's'}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
