"""Measure the set-ups one after the other, and collect the cells."""

import contextlib
import csv
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

from bench.figures import Cell, Clients, Seen, Timing
from bench.load import Target, batches_of, by_users
from bench.loadtest.payload import (
    CapturedRequests,
    Payload,
    PayloadError,
    Pictures,
    basket_payload,
)
from bench.loadtest.setups import Setup, timing_of
from bench.loadtest.tables import LoadTest
from bench.machine import lacks_memory_for
from bench.prepared import Prepared
from testing.open_loop_requests import Outcome
from testing.server import Server, serving, workers_in

_BODIES = 64
_PROBES = 3


@dataclass(frozen=True)
class Plan:
    """What to measure: `model` is the folder of the only model in its parent.

    `seconds` and `warm_up_s` replace the chosen times. A server that is not ready
    after `ready_within_s` seconds is not measured. With `captured`, a folder or file,
    captured requests are sent.
    """

    setups: Sequence[Setup]
    users: Sequence[int]
    model: Path
    quick: bool = False
    seconds: float | None = None
    warm_up_s: float | None = None
    ready_within_s: float = 300
    captured: Path | None = None


@dataclass
class Run:
    """Fills `campaign` with what `plan` says; `raw` is the folder of CSV files.

    `row_s` is the time of a row alone, which the first server shows.
    """

    plan: Plan
    campaign: LoadTest
    raw: Path
    row_s: float | None = None

    def measure(self) -> None:
        """Measure all set-ups; Ctrl-C ends it with what has been measured."""
        with self.campaign.until_interrupted():
            for setup in self.plan.setups:
                self.campaign.progress.say(f"starting {setup.name} ...")
                cells = [
                    Cell(self.plan.model.name, setup.name, "", Clients(users, True), 0)
                    for users in self.plan.users
                ]
                self.campaign.measure(
                    self._serve(setup),
                    cells,
                    partial(self._timing, setup),
                    partial(self._drive, setup),
                )

    @contextlib.contextmanager
    def _serve(self, setup: Setup) -> Iterator[Target]:
        """Serve the model.

        Raises:
            OSError: there is not enough memory, or no request can be made.
            AssertionError: the server ended, a model failed, or it took too long.
        """
        workers = workers_in(setup.arguments)
        lacks = lacks_memory_for(self.plan.model, workers)
        if lacks:
            raise OSError(lacks)
        with serving(
            *setup.arguments,
            ready=False,
            check_exit=False,
            own_session=True,
            model_dir=str(self.plan.model.parent),
            **setup.settings,
        ) as server:
            server.wait_until_loaded(self.plan.ready_within_s)
            ready = server.request("GET", "/readyz")
            assert ready.status == HTTPStatus.OK, f"not ready: {ready.body.decode()}"
            server.wait_until_ready(workers, self.plan.ready_within_s)
            prepared = self._prepare(server)
            target = Target(server.port, prepared, lambda: batches_of(server))
            if self.row_s is None:
                self.row_s = _row_seconds(target)
            yield target

    def _prepare(self, server: Server) -> Prepared:
        """Return captured requests, random rows of the model's inputs, or pictures."""
        payload: Payload | Pictures | CapturedRequests
        try:
            if self.plan.captured is not None:
                payload = CapturedRequests(self.plan.captured)
            else:
                payload = basket_payload(server.request("GET", "/readyz").json())
        except PayloadError as error:
            raise OSError(str(error)) from error
        folder = self.plan.model.parent.with_name("bodies")
        folder.mkdir(exist_ok=True)
        files = tuple(folder / str(number) for number in range(_BODIES))
        for file in files:
            file.write_bytes(payload.body())
        return Prepared(self.plan.model.parent, files, None, payload.content_type)

    def _timing(self, setup: Setup, cell: Cell) -> Timing:
        assert self.row_s is not None
        chosen = timing_of(
            setup,
            cell.clients.count,
            row_s=self.row_s,
            # Simulated workers have a device each, real ones share the machine.
            devices=workers_in(setup.arguments) if self.campaign.simulated else 1,
            quick=self.plan.quick,
        )
        warm_up_s = self.plan.warm_up_s or chosen.warm_up_s
        return Timing(warm_up_s, self.plan.seconds or chosen.measured_s)

    def _drive(
        self, setup: Setup, target: Target, clients: Clients, timing: Timing
    ) -> Seen:
        slug = re.sub(r"[^a-z0-9]+", "-", setup.name.lower()).strip("-")
        file = self.raw / f"{slug}-{clients.count}-users.csv"

        def keep(outcomes: Sequence[Outcome]) -> None:
            with file.open("w", newline="") as output:
                writer = csv.writer(output, lineterminator="\n")
                writer.writerow(("at_s", "response_s", "status"))
                for each in outcomes:
                    at_s = each.ended_s - timing.warm_up_s
                    took_s = each.ended_s - each.sent_s
                    writer.writerow((f"{at_s:.4f}", f"{took_s:.4f}", each.status))

        return by_users(target, clients, timing, keep)


def _row_seconds(target: Target) -> float:
    """Return the least time of a row alone."""
    times_s = []
    for _ in range(_PROBES):
        began_at = time.monotonic()
        assert target.answers(), "the first requests were not answered"
        times_s.append(time.monotonic() - began_at)
    return min(times_s)
