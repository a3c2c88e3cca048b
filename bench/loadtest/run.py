"""Measure the set-ups one after the other, and collect the cells."""

import contextlib
import csv
import re
import timeit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

from app.commands.measurement import bytes_text, file_bytes
from bench.campaign import Campaign
from bench.figures import Cell, Clients, Seen, Timing
from bench.load import Target, by_users
from bench.loadtest.setups import Setup, timing_of
from bench.prepared import Prepared, prepared_in, write_requests
from testing.memory import available_bytes
from testing.open_loop_requests import Outcome
from testing.payload import CapturedRequests, PayloadError, basket_payload
from testing.server import Server, serving, workers_in

_BODIES = 64
_PROBES = 3
# Loading a .keras file of 0.5 GiB peaked at 1.9 GiB: three times the file, and half a
# GiB for TensorFlow.
_COPIES = 3
_PROCESS_BYTES = 1 << 29


@dataclass(frozen=True)
class Plan:
    """What to measure: `model` is the folder of the only model in its parent.

    `seconds` and `warm_up_s` replace the chosen times. A server that is not ready
    after `ready_within_s` seconds is not measured. `prepared` requests are sent, or
    captured ones of a folder or file, else ones that fit the model.
    """

    setups: Sequence[Setup]
    users: Sequence[int]
    model: Path
    quick: bool = False
    seconds: float | None = None
    warm_up_s: float | None = None
    ready_within_s: float = 300
    captured: Path | None = None
    prepared: Prepared | None = None

    def prepare(self, server: Server) -> Prepared:
        """Return what is sent: random rows of the model's inputs, or pictures."""
        if self.prepared is not None:
            return self.prepared
        try:
            if self.captured is not None:
                payload = CapturedRequests(self.captured)
            else:
                payload = basket_payload(server.request("GET", "/readyz").json())
        except PayloadError as error:
            raise OSError(str(error)) from error
        folder = self.model.parent.parent
        write_requests(folder, (payload.body() for _ in range(_BODIES)))
        return prepared_in(folder, payload.content_type)


@dataclass
class LoadTest(Campaign):
    """A campaign with one model; `simulated`: its device takes 0.3 s for any batch.

    `row_s` is the time of a row alone, which the first server shows.
    """

    model: str = ""
    simulated: bool = False
    row_s: float | None = None

    def measure_all(self, plan: Plan, raw: Path) -> None:
        """Measure all set-ups; Ctrl-C ends it with what has been measured.

        `raw` is a new folder for CSV files.
        """
        raw.mkdir()
        with self.until_interrupted():
            for setup in plan.setups:
                print(f"starting {setup.name} ...", flush=True)
                cells = [
                    Cell(self.model, setup.name, "", Clients(users, thinks=True), 0)
                    for users in plan.users
                ]
                self.measure(
                    partial(self._serve, plan, setup),
                    cells,
                    partial(self._timing, plan, setup),
                    partial(_drive, raw, setup),
                )

    @contextlib.contextmanager
    def _serve(self, plan: Plan, setup: Setup) -> Iterator[Target]:
        """Serve the model.

        Raises:
            OSError: there is not enough memory, or no request can be made.
            AssertionError: the server ended, a model failed, or it took too long.
        """
        workers = workers_in(setup.arguments)
        check_memory(plan.model, workers)
        with serving(
            *setup.arguments,
            ready=False,
            check_exit=False,
            own_session=True,
            model_dir=str(plan.model.parent),
            **setup.settings,
        ) as server:
            server.wait_until_loaded(plan.ready_within_s)
            ready = server.request("GET", "/readyz")
            assert ready.status == HTTPStatus.OK, f"not ready: {ready.body.decode()}"
            server.wait_until_ready(workers, plan.ready_within_s)
            target = Target(server, plan.prepare(server))
            if self.row_s is None:
                assert target.answers(), "the first request was not answered"
                times_s = timeit.repeat(target.answers, number=1, repeat=_PROBES)
                self.row_s = min(times_s)
            yield target

    def _timing(self, plan: Plan, setup: Setup, cell: Cell) -> Timing:
        assert self.row_s is not None
        chosen = timing_of(
            setup,
            cell.clients.count,
            row_s=self.row_s,
            simulated=self.simulated,
            quick=plan.quick,
        )
        warm_up_s = plan.warm_up_s or chosen.warm_up_s
        return Timing(warm_up_s, plan.seconds or chosen.measured_s)


def check_memory(model: Path, processes: int) -> None:
    """Raise OSError if there is not enough memory to load `model` in each process."""
    size, free = file_bytes(model), available_bytes()
    needed = processes * (_COPIES * size + _PROCESS_BYTES)
    if needed > free:
        raise OSError(
            f"not enough memory: {processes} processes with a model of "
            f"{bytes_text(size)} need up to {bytes_text(needed)} to load, "
            f"{bytes_text(free)} are free"
        )


def _drive(
    raw: Path, setup: Setup, target: Target, clients: Clients, timing: Timing
) -> Seen:
    slug = re.sub(r"[^a-z0-9]+", "-", setup.name.lower()).strip("-")
    file = raw / f"{slug}-{clients.count}-users.csv"

    def keep(outcomes: Sequence[Outcome]) -> None:
        with file.open("w", newline="") as output:
            writer = csv.writer(output, lineterminator="\n")
            writer.writerow(("at_s", "response_s", "status"))
            for each in outcomes:
                times = each.ended_s - timing.warm_up_s, each.ended_s - each.sent_s
                writer.writerow((*(f"{time_s:.4f}" for time_s in times), each.status))

    return by_users(target, clients, timing, keep)
