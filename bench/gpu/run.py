"""Run the experiment: batch sizes, then users, and the device's memory."""

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from app.settings import Settings
from bench.figures import Cell, Clients, Timing
from bench.gpu.device import Device
from bench.load import Checker, Target, by_users
from bench.loadtest.setups import SETUPS, USERS, Setup, timing_of
from bench.peers.servers import Setting, basket
from bench.prepared import prepared_in
from bench.report import Progress
from testing.server import ROOT

# Of the folder that the model's own process fills.
MODEL_NAME, FOUND_FILE = "recurrent", "found.json"
LARGEST = Settings().max_batch_size
_BY_NAME = {each.name: each for each in SETUPS}
_NAIVE = _BY_NAME["naive"]
_BATCHING = Setup("batching", _BY_NAME["batching, auto"].arguments)
_LIMITED = Setup(
    "batching, a fraction of 0.4", _BATCHING.arguments, {"gpu_memory_fraction": "0.4"}
)


@dataclass(frozen=True)
class Plan:
    """A model of `units` x `units` weights that takes `latency_ms` for one row.

    The latency may be off by `tolerance`, a share of it. The engine alone runs for
    `bare_s` with each batch size; `seconds`, None: chosen as in a load test.
    """

    latency_ms: float
    units: int
    tolerance: float
    users: tuple[int, ...]
    bare_s: float
    seconds: Timing | None = None

    def timing(self, setup: Setup, users: int) -> Timing:
        """Return how long to warm up and to measure."""
        if self.seconds is not None:
            return self.seconds
        row_s = self.latency_ms / 1000
        return timing_of(setup, users, row_s=row_s, devices=1, quick=False)

    def steps(self) -> list[tuple[Setup, tuple[int, ...]]]:
        """Return each server with its numbers of users; the last is for its memory."""
        return [(_NAIVE, self.users), (_BATCHING, self.users), (_LIMITED, ())]


# 1 GiB of weights is far more than any GPU's cache.
FULL = Plan(300, 16_384, 0.1, USERS, 3.0)
# A single user would think for almost all of the time.
QUICK = Plan(2, 128, 1.5, (2, 5), 0.1, Timing(0.2, 2.8))


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
    """What was measured; `rates` are rows in a batch, and rows/s of the engine alone.

    The model has `steps` steps and `weights_mib` MiB of weights; one row takes
    `row_ms`.
    """

    steps: int
    row_ms: float
    weights_mib: float
    rates: list[tuple[int, float]]
    cells: list[Cell] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)


class NoModel(Exception):
    """The model could not be made; its process has printed why."""


def measure(plan: Plan, device: Device, kind: str, folder: Path) -> Found:
    """Measure everything; `kind` is the device that JAX must see: gpu, or any.

    Raises:
        NoModel: the model cannot be made.
        Exception: one of `bench.report.PROBLEMS`: a server or the engine failed.
    """
    progress = Progress(sum(len(users) for _, users in plan.steps()))
    progress.say("making the model ...")
    # In a process of its own: JAX keeps the device's memory.
    wanted = (plan.latency_ms, plan.units, plan.tolerance, plan.bare_s)
    command = [sys.executable, "-m", "bench.gpu.model", str(folder), kind]
    if subprocess.run([*command, *map(str, wanted)], cwd=ROOT, check=False).returncode:  # noqa: S603
        raise NoModel
    found = Found(**json.loads((folder / FOUND_FILE).read_text()))
    prepared = prepared_in(folder)
    for setup, users in plan.steps():
        progress.say(f"starting {setup.name} ...")
        before_mib = device.used_mib()
        serve = basket(*setup.arguments, engine="jax", **setup.settings)
        with serve(prepared, Setting()) as target:
            ready_mib = device.used_mib() - before_mib
            for number in users:
                timing = plan.timing(setup, number)
                found.cells.append(_with_users(setup, number, timing, target, progress))
            _send_largest(target)
            full_mib = device.used_mib() - before_mib
        found.memory.append(Memory(setup.name, ready_mib, full_mib))
        progress.say(f"{setup.name}: {full_mib:,} MiB of the device")
    return found


def _with_users(
    setup: Setup, users: int, timing: Timing, target: Target, progress: Progress
) -> Cell:
    clients = Clients(users, thinks=True)
    title = f"{setup.name}, {clients}"
    progress.begin(title, sum(timing))
    seen = by_users(target, clients, timing)
    progress.end(title, seen)
    return Cell(MODEL_NAME, setup.name, "", clients, 0, seen)


def _send_largest(target: Target) -> None:
    """Send one request with as many rows as the largest batch.

    Raises:
        AssertionError: it was not answered with 200.
    """
    row = json.loads(target.prepared.bodies[0].read_bytes())["instances"]
    body = json.dumps({"instances": row * LARGEST}).encode()
    with contextlib.closing(Checker(target)) as checker:
        answer = checker.post(body)
    assert answer is not None, f"a batch of {LARGEST} rows was not answered"
