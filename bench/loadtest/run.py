"""Measure the set-ups one after the other, and collect the cells."""

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from bench.figures import THINK_S, Timing
from bench.loadtest.analysis import Campaign, Cell, figures_of
from bench.loadtest.drive import Job, drive
from bench.loadtest.payload import PayloadError, basket_payload
from bench.loadtest.setups import Setup, timing_of
from bench.machine import lacks_memory_for
from bench.report import PROBLEMS, Progress, one_line
from testing.server import Reply, Server, serving, workers_in

_ANSWER_WITHIN_S = 5
_PROBES = 3
# Assumed time of a row until one has been measured.
_FIRST_ROW_S = 0.3


@dataclass(frozen=True)
class Plan:
    """What to measure: `model` is the folder of the only model in its parent.

    `seconds` and `warm_up_s` replace the chosen times. A server that is not ready
    after `ready_within_s` seconds is not measured.
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
    """Fills `campaign` with what `plan` says; `raw` is the folder of CSV files."""

    plan: Plan
    campaign: Campaign
    raw: Path
    progress: Progress
    row_s: float | None = None

    def measure(self) -> None:
        """Measure all set-ups; Ctrl-C ends it with what has been measured."""
        try:
            for setup in self.plan.setups:
                self._measure_setup(setup)
        except KeyboardInterrupt:
            self.campaign.stopped = True

    def _measure_setup(self, setup: Setup) -> None:
        self.progress.say(f"starting {setup.name} ...")
        left = list(self.plan.users)
        workers = workers_in(setup.arguments)
        problem = lacks_memory_for(self.plan.model, workers)
        try:
            if problem is None:
                with serving(
                    *setup.arguments,
                    ready=False,
                    check_exit=False,
                    own_session=True,
                    model_dir=str(self.plan.model.parent),
                    **setup.settings,
                ) as server:
                    _wait_until_ready(server, workers, self.plan.ready_within_s)
                    if self.row_s is None:
                        self.row_s = _row_seconds(server)
                    while left:
                        server.wait_until(lambda: True, 1)
                        self._measure_cell(setup, left[0], server)
                        del left[0]
        except PROBLEMS as error:
            problem = one_line(error)
        for users in left:
            self._keep(Cell(setup.name, users, THINK_S, 0, problem=problem))

    def _measure_cell(self, setup: Setup, users: int, server: Server) -> None:
        timing = self._timing(setup, users)
        self.progress.begin(_title(setup.name, users), sum(timing))
        slug = re.sub(r"[^a-z0-9]+", "-", setup.name.lower()).strip("-")
        job = Job(
            host=f"http://127.0.0.1:{server.port}",
            user_class="SelfCheckout",
            users=users,
            warm_up_s=timing.warm_up_s,
            measured_s=timing.measured_s,
            file=str(self.raw / f"{slug}-{users}-users.csv"),
        )
        self._keep(Cell(setup.name, users, THINK_S, *drive(job)))

    def _keep(self, cell: Cell) -> None:
        self.campaign.cells.append(cell)
        figures = figures_of(cell, simulated=self.campaign.simulated)
        words = [] if cell.problem is None else [cell.problem]
        if figures.mean_s is not None and figures.p95_s is not None:
            words.append(f"mean {figures.mean_s:.3f} s, p95 {figures.p95_s:.3f} s")
            words.append(f"{figures.rate:.2f} requests/s")
        self.progress.end(_title(cell.setup, cell.users), ", ".join(words))

    def _timing(self, setup: Setup, users: int) -> Timing:
        chosen = timing_of(
            setup,
            users,
            row_s=self.row_s or _FIRST_ROW_S,
            # Simulated workers have a device each, real ones share the machine.
            devices=workers_in(setup.arguments) if self.campaign.simulated else 1,
            quick=self.plan.quick,
        )
        warm_up_s, measured_s = self.plan.warm_up_s, self.plan.seconds
        return Timing(
            chosen.warm_up_s if warm_up_s is None else warm_up_s,
            chosen.measured_s if measured_s is None else measured_s,
        )


def _wait_until_ready(server: Server, workers: int, within_s: float) -> None:
    """Wait until all workers have loaded the model.

    Raises:
        AssertionError: the server ended, a model failed, or it took too long.
    """

    def is_decided() -> bool:
        reply = _readyz(server)
        if reply is None or b"is loading" in reply.body:
            return False
        # One worker answers /readyz for all.
        return reply.status != HTTPStatus.OK or server.loaded() >= workers

    try:
        server.wait_until(is_decided, within_s)
    except AssertionError as error:
        if server.process.poll() is None:
            log = server.log.read_text(errors="replace")
            raise AssertionError(f"not ready within {within_s:g} s: {log}") from error
        raise
    reply = _readyz(server)
    if reply is None or reply.status != HTTPStatus.OK:
        text = reply.body.decode() if reply else server.log.read_text()
        raise AssertionError(f"not ready: {text}")


def _readyz(server: Server) -> Reply | None:
    try:
        return server.request("GET", "/readyz", timeout_s=_ANSWER_WITHIN_S)
    except OSError:
        return None


def _row_seconds(server: Server) -> float | None:
    """Return the time of a row alone, None if a request failed."""
    try:
        payload = basket_payload(server.request("GET", "/readyz").json())
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


def _title(setup: str, users: int) -> str:
    return f"{setup}, {users} user{'' if users == 1 else 's'}"
