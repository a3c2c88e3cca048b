"""Run the experiment: batch sizes, then users, and the device's memory."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app import gpus
from app.settings import Settings
from bench.campaign import Campaign
from bench.figures import Cell, Clients, Timing
from bench.load import Target, by_users
from bench.loadtest.setups import AUTO, NAIVE, USERS, Setup, timing_of
from bench.peers.servers import Setting, basket
from bench.prepared import Prepared, prepared_in
from testing.server import ROOT

# Of the folder that the model's own process fills.
MODEL_NAME, FOUND_FILE = "recurrent", "found.json"
LARGEST = Settings().max_batch_size
_BATCHING = Setup("batching", AUTO.arguments)
_LIMITED = Setup(
    "batching, a fraction of 0.4", AUTO.arguments, {"gpu_memory_fraction": "0.4"}
)


def pinned_gpu() -> gpus.MemoryReader | None:
    """Pin this process and its children to the first visible GPU; return its reader.

    It reads the memory that all processes together use: in a container the driver may
    know a process by another id.
    """
    there = gpus.visible()
    if not there:
        return None
    gpus.pin(there[0].number)
    return gpus.MemoryReader((there[0].number,))


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
        return [(NAIVE, self.users), (_BATCHING, self.users), (_LIMITED, ())]


# 1 GiB of weights is far more than any GPU's cache.
FULL = Plan(300, 16_384, 0.1, USERS, 3.0)
# A single user would think for almost all of the time.
QUICK = Plan(2, 128, 1.5, (2, 5), 0.1, Timing(0.2, 2.8))


@dataclass(frozen=True)
class Found:
    """The model has `steps` steps and `weights_mib` MiB; one row takes `row_ms`.

    `rates` are rows in a batch, and rows/s of the engine alone.
    """

    steps: int = 0
    row_ms: float = 0.0
    weights_mib: float = 0.0
    rates: Sequence[tuple[int, float]] = ()


@dataclass
class Experiment(Campaign):
    """What was measured; `gpu` reads the GPU's memory, None: on the processor.

    `found` is what the process that made the model has measured. `memory` has each
    server's name, and the MiB of the device that it takes after its first answer and
    after a batch of the largest size.
    """

    gpu: gpus.MemoryReader | None = None
    found: Found = Found()
    memory: list[tuple[str, int, int]] = field(default_factory=list)

    def measure_all(self, plan: Plan, folder: Path) -> bool:
        """Measure everything.

        Return whether the model could be made, else its process has printed why.
        """
        print("making the model ...", flush=True)
        # In a process of its own: JAX keeps the device's memory.
        kind = "any" if self.gpu is None else "gpu"
        wanted = (plan.latency_ms, plan.units, plan.tolerance, plan.bare_s)
        command = [sys.executable, "-m", "bench.gpu.model", str(folder), kind]
        command += map(str, wanted)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:  # noqa: S603
            return False
        self.found = Found(**json.loads((folder / FOUND_FILE).read_text()))
        prepared = prepared_in(folder)
        for setup, users in plan.steps():
            print(f"starting {setup.name} ...", flush=True)
            cells = [
                Cell(MODEL_NAME, setup.name, "", Clients(number, thinks=True), 0)
                for number in users
            ]
            serve = partial(self._weighed, setup, prepared)
            problem = self.measure(serve, cells, partial(plan.timing, setup), by_users)
            print(f"{setup.name}: {problem or 'measured'}", flush=True)
        return True

    @contextlib.contextmanager
    def _weighed(self, setup: Setup, prepared: Prepared) -> Iterator[Target]:
        """Serve the model, and note the memory that the server takes."""
        before_mib = self._used_mib()
        serve = basket(*setup.arguments, engine="jax", **setup.settings)
        with serve(prepared, Setting()) as target:
            ready_mib = self._used_mib() - before_mib
            yield target
            row = json.loads(prepared.bodies[0].read_bytes())["instances"]
            answer = target.post(json.dumps({"instances": row * LARGEST}).encode())
            assert answer is not None, f"a batch of {LARGEST} rows was not answered"
            full_mib = self._used_mib() - before_mib
        self.memory.append((setup.name, ready_mib, full_mib))

    def _used_mib(self) -> int:
        return sum(each.used_mib for each in self.gpu.read()) if self.gpu else 0
