"""What is measured: servers, users and sizes, and how long that takes."""

from dataclasses import dataclass, replace

from bench.loadtest.measurement import Setup
from bench.loadtest.setups import SETUPS, USERS, timing_of
from bench.peers.plan import Timing

# Of the folder that the model's own process fills.
MODEL_NAME, FOUND_FILE = "recurrent", "found.json"
_BY_NAME = {setup.name: setup for setup in SETUPS}
NAIVE = _BY_NAME["naive"]
BATCHING = replace(_BY_NAME["batching, auto"], name="batching")
_FRACTION = {"gpu_memory_fraction": "0.4"}
LIMITED = Setup("batching, a fraction of 0.4", BATCHING.arguments, _FRACTION)
# A guess for the time that is left: to start a server, and to stop it.
_START_S = 25


@dataclass(frozen=True)
class Plan:
    """A model of `units` x `units` weights that takes `latency_ms` for one row.

    It may be off by `tolerance`, a share of that. `bare_s` is how long the engine runs
    with each size of a batch, `seconds` how long users come; None: as in a load test.
    """

    latency_ms: float
    units: int
    tolerance: float
    users: tuple[int, ...]
    bare_s: float
    seconds: Timing | None = None

    def timing(self, setup: Setup, users: int) -> Timing:
        """How long to warm up and to measure so many users."""
        if self.seconds is not None:
            return self.seconds
        row_s = self.latency_ms / 1000
        return Timing(*timing_of(setup, users, row_s=row_s, devices=1, quick=False))

    def steps(self) -> list[tuple[Setup, tuple[int, ...]]]:
        """Each server, and the users that come to it; the last is for its memory."""
        return [(NAIVE, self.users), (BATCHING, self.users), (LIMITED, ())]

    def left_s(self, done: int) -> float:
        """How many seconds there are left, about, when so many cells are measured."""
        cells = [(setup, n) for setup, users in self.steps() for n in users]
        left = cells[done:]
        starts = len({setup.name for setup, _ in left}) + 1
        return starts * _START_S + sum(sum(self.timing(*cell)) for cell in left)


# 1 GiB of weights: far more than any GPU's cache.
FULL = Plan(300, 16_384, 0.1, USERS, 3.0)
# Whoever is alone would think for almost all of the time.
QUICK = Plan(2, 128, 1.5, (2, 5), 0.1, Timing(0.2, 2.8))
