"""Runs the experiment: sizes of a batch, then users, and memory beside them."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from app.settings import Settings
from bench import processes
from bench.gpu.device import Device
from bench.gpu.plan import FOUND_FILE, MODEL_NAME, Plan
from bench.loadtest.measurement import Setup
from bench.loadtest.progress import Progress
from bench.peers import drive
from bench.peers.cells import Cell
from bench.peers.loads import JSON, Clients, Load, Prepared, found_in
from bench.peers.running import PATH, Running
from bench.peers.set_ups import Setting, basket
from testing.server import ROOT

_ENGINE = "jax"
LARGEST = Settings().max_batch_size


@dataclass(frozen=True)
class Memory:
    """MiB of the device that a server takes.

    `ready_mib` after its first answer, `full_mib` after a batch of the largest size.
    """

    server: str
    ready_mib: int
    full_mib: int


@dataclass
class Found:
    """What was measured: rows in a batch and rows/s, cells, memory.

    The model has `steps` steps and `weights_mib` MiB of weights, and one row takes
    `row_ms`.
    """

    steps: int
    row_ms: float
    weights_mib: float
    rates: list[tuple[int, float]]
    cells: list[Cell] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every answer came, and was right."""
        return all(cell.sound and cell.rate for cell in self.cells)


class NoModel(Exception):
    """The model could not be made; its process has said why."""


@dataclass
class Run:
    """One experiment on its way; the model is made in `folder`."""

    plan: Plan
    device: Device
    folder: Path
    progress: Progress

    def measure(self, kind: str) -> Found:
        """Measure all of it; `kind` is the device that JAX must see: gpu, or any.

        Raises:
            NoModel: it can't be made.
            Exception: those of `bench.peers.run.PROBLEMS`: a server or engine failed.
        """
        self.progress.say("making the model ...")
        found, prepared = self._make(kind)
        for setup, users in self.plan.steps():
            self._serve(setup, users, prepared, found)
        return found

    def _make(self, kind: str) -> tuple[Found, Prepared]:
        """In a process of its own: JAX would keep the device's memory."""
        plan = self.plan
        wanted = (plan.latency_ms, plan.units, plan.tolerance, plan.bare_s)
        command = [sys.executable, "-m", "bench.gpu.model", str(self.folder), kind]
        command += map(str, wanted)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603
            raise NoModel
        told = json.loads((self.folder / FOUND_FILE).read_text())
        load = Load(MODEL_NAME, "", (), by_users=True)
        return Found(**told), found_in(load, self.folder)

    def _serve(
        self, setup: Setup, users: tuple[int, ...], prepared: Prepared, found: Found
    ) -> None:
        self.progress.say(f"starting {setup.name} ...")
        before_mib = self.device.used_mib()
        serve = basket(*setup.arguments, engine=_ENGINE, **setup.settings)
        with serve(prepared, Setting()) as server:
            ready_mib = self.device.used_mib() - before_mib
            for number in users:
                found.cells.append(
                    self._measure(setup, number, server, len(found.cells))
                )
            _ask_for_the_largest(server)
            full_mib = self.device.used_mib() - before_mib
        found.memory.append(Memory(setup.name, ready_mib, full_mib))
        self.progress.say(f"{setup.name}: {full_mib:,} MiB of the device")

    def _measure(self, setup: Setup, users: int, server: Running, done: int) -> Cell:
        title = f"{setup.name}, {users} user{'' if users == 1 else 's'}"
        self.progress.begin(title, self.plan.left_s(done))
        clients = Clients(users, thinks=True)
        seen = drive.by_users(server, clients, self.plan.timing(setup, users))
        cell = Cell(MODEL_NAME, setup.name, "", clients, 1, **seen)  # type: ignore[arg-type]
        told = f"mean {cell.mean_s:.3f} s, p95 {cell.p95_s:.3f} s"
        told += "" if cell.sound else ", NOT ALL RIGHT"
        self.progress.end(told, self.plan.left_s(done + 1))
        return cell


def _ask_for_the_largest(server: Running) -> None:
    """One request that is a batch of the largest size.

    Raises:
        AssertionError: it was not answered.
    """
    row = json.loads(server.prepared.bodies[0].read_bytes())["instances"]
    body = json.dumps({"instances": row * LARGEST}).encode()
    answered = processes.answers(server.port, PATH, body, JSON)
    assert answered, f"a batch of {LARGEST} rows was not answered"
