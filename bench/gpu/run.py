"""Run the experiment: batch sizes, then users, and the device's memory."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pynvml

from app import gpus
from app.settings import Settings
from bench.campaign import Campaign
from bench.figures import Cell, Clients, Timing
from bench.load import Checker, Target, by_users
from bench.loadtest.setups import SETUPS, USERS, Setup, timing_of
from bench.peers.servers import Setting, basket
from bench.prepared import Prepared, prepared_in
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
class Device:
    """What computes; `used_mib` returns the memory that all processes together use.

    Not per process: in a container the driver may know a process by another id.
    """

    name: str
    driver: str
    memory_mib: int
    used_mib: Callable[[], int]


PROCESSOR = Device("the processor, in a trial run", "none", 0, lambda: 0)


def gpu() -> Device | None:
    """Pin this process and its children to the first visible GPU, and return it."""
    there = gpus.visible()
    if not there:
        return None
    gpus.pin(there[0].number)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(there[0].number)
    return Device(
        str(pynvml.nvmlDeviceGetName(handle)),
        str(pynvml.nvmlSystemGetDriverVersion()),
        there[0].memory_mib,
        lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) >> 20,
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

    def timing(self, setup: Setup, cell: Cell) -> Timing:
        """Return how long to warm up and to measure."""
        if self.seconds is not None:
            return self.seconds
        users, row_s = cell.clients.count, self.latency_ms / 1000
        return timing_of(setup, users, row_s=row_s, devices=1, quick=False)

    def steps(self) -> list[tuple[Setup, tuple[int, ...]]]:
        """Return each server with its numbers of users; the last is for its memory."""
        return [(_NAIVE, self.users), (_BATCHING, self.users), (_LIMITED, ())]

    def cells(self) -> int:
        """Return the number of cells."""
        return sum(len(users) for _, users in self.steps())


# 1 GiB of weights is far more than any GPU's cache.
FULL = Plan(300, 16_384, 0.1, USERS, 3.0)
# A single user would think for almost all of the time.
QUICK = Plan(2, 128, 1.5, (2, 5), 0.1, Timing(0.2, 2.8))


@dataclass
class Experiment(Campaign):
    """What was measured; `rates` are rows in a batch, and rows/s of the engine alone.

    The model has `steps` steps and `weights_mib` MiB of weights; one row takes
    `row_ms`. `memory` has each server's name, and the MiB of the device that it takes
    after its first answer and after a batch of the largest size.
    """

    steps: int = 0
    row_ms: float = 0.0
    weights_mib: float = 0.0
    rates: list[tuple[int, float]] = field(default_factory=list)
    memory: list[tuple[str, int, int]] = field(default_factory=list)

    def measure_all(self, plan: Plan, device: Device, kind: str, folder: Path) -> bool:
        """Measure everything; `kind` is the device that JAX must see: gpu, or any.

        Return whether the model could be made, else its process has printed why.
        """
        self.progress.say("making the model ...")
        # In a process of its own: JAX keeps the device's memory.
        wanted = (plan.latency_ms, plan.units, plan.tolerance, plan.bare_s)
        command = [sys.executable, "-m", "bench.gpu.model", str(folder), kind]
        command += map(str, wanted)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603
            return False
        for name, value in json.loads((folder / FOUND_FILE).read_text()).items():
            setattr(self, name, value)
        prepared = prepared_in(folder)
        for setup, users in plan.steps():
            self.progress.say(f"starting {setup.name} ...")
            cells = [
                Cell(MODEL_NAME, setup.name, "", Clients(number, thinks=True), 0)
                for number in users
            ]
            server = self._weighed(setup, device, prepared)
            timing = partial(plan.timing, setup)
            problem = self.measure(server, cells, timing, by_users)
            self.progress.say(f"{setup.name}: {problem or 'measured'}")
        return True

    @contextlib.contextmanager
    def _weighed(
        self, setup: Setup, device: Device, prepared: Prepared
    ) -> Iterator[Target]:
        """Serve the model, and note the memory that the server takes."""
        before_mib = device.used_mib()
        serve = basket(*setup.arguments, engine="jax", **setup.settings)
        with serve(prepared, Setting()) as target:
            ready_mib = device.used_mib() - before_mib
            yield target
            _send_largest(target)
            full_mib = device.used_mib() - before_mib
        self.memory.append((setup.name, ready_mib, full_mib))


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
