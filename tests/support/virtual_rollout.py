"""One rollout in virtual time: two versions with queues of their own on one device."""

import random
from dataclasses import dataclass
from typing import NamedTuple

from app.commands.plan.batch_seconds import BatchSeconds
from app.commands.plan.server import PlannedJob, ServerPlan, SimulatedServer
from app.commands.plan.timeline import Timeline
from app.promotion.evidence import Evidence
from app.promotion.judgment import problem
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig

SETTINGS = Settings()
NAME = "model 2"


@dataclass(frozen=True)
class Workload:
    """`rate` requests/s at random; a batch takes `base_s`, and `row_s` for each row.

    Every `pause_every_s` on average the device stops for up to `pause_s`.
    `error_rate` is that of both versions.
    """

    rate: float
    base_s: float
    row_s: float
    pause_every_s: float = 0.0
    pause_s: float = 0.0
    error_rate: float = 0.0
    is_shared: bool = True


@dataclass(frozen=True)
class Fault:
    """What is wrong with the candidate: shares of its requests, and a factor."""

    error_rate: float = 0.0
    nan_rate: float = 0.0
    slowdown: float = 1.0


class Outcome(NamedTuple):
    """How a rollout ended: the reason or "", when, and after how many requests."""

    reason: str
    seconds: float
    candidates: int


class Device:
    """Runs one batch at a time."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline, self._free_at = timeline, 0.0

    def occupy(self, seconds: float) -> float:
        """Return the seconds until what begins now has ended."""
        self._free_at = max(self._free_at, self._timeline.now) + seconds
        return self._free_at - self._timeline.now


class Batches(BatchSeconds):
    """The seconds of one version's batches, with the wait for the device."""

    def __init__(self, device: Device, load: Workload, slowdown: float) -> None:
        sizes = (1, SETTINGS.max_batch_size)
        times = {n: slowdown * (load.base_s + load.row_s * n) for n in sizes}
        super().__init__(times, SETTINGS)
        self._device = device

    def of(self, rows: int) -> float:
        return self._device.occupy(super().of(rows))


class Rollout:
    """A rollout by steps; its phase 0 is before, when only the old version serves."""

    def __init__(
        self, load: Workload, fault: Fault, config: PromotionConfig, seed: int
    ) -> None:
        """Store the parts; the same seed gives the same rollout."""
        self._load, self._config = load, config
        self._faults = (Fault(), fault)
        self._chance = random.Random(seed)
        self._timeline = Timeline()
        first, second = Device(self._timeline), Device(self._timeline)
        self._devices = [first] if load.is_shared else [first, second]
        self._evidence = Evidence(None, self._timeline.clock)
        self._sides = [
            SimulatedServer(
                ServerPlan(SETTINGS, Batches(device, load, each.slowdown), 0.0005),
                *(self._timeline, self._done),
            )
            for device, each in zip(self._devices * 2, self._faults, strict=False)
        ]
        self._phase, self._share, self._candidates = 0, 0.0, 0
        self._ends_at, self._reason = 0.0, ""

    def run(self, before_s: float) -> Outcome:
        """Run to its end, or until the candidate is judged to be worse.

        The version before serves alone for `before_s`.
        """
        at, config = self._timeline.at, self._config
        at(0.0, self._arrive)
        if self._load.pause_every_s:
            at(self._after(self._load.pause_every_s), self._pause)
        for number, step in enumerate((*config.steps, 100)):
            begins_at = before_s + number * config.step_s
            at(begins_at, self._enter, number + 1, step / 100)
        self._ends_at = begins_at + config.watch_s
        at(before_s, self._judge)
        self._timeline.run()
        return Outcome(self._reason, self._timeline.now - before_s, self._candidates)

    def _after(self, mean_s: float) -> float:
        return self._timeline.now + self._chance.expovariate(1 / mean_s)

    def _enter(self, phase: int, share: float) -> None:
        self._phase, self._share = phase, share

    def _arrive(self) -> None:
        side = self._chance.random() < self._share
        # The user's number says to which side a request belongs, and in which phase.
        self._sides[side].receive(
            PlannedJob(self._timeline.now, 2 * self._phase + side)
        )
        self._timeline.at(self._after(1 / self._load.rate), self._arrive)

    def _pause(self) -> None:
        seconds = self._chance.uniform(0, self._load.pause_s)
        for device in self._devices:
            device.occupy(seconds)
        self._timeline.at(self._after(self._load.pause_every_s), self._pause)

    def _done(self, request: PlannedJob, is_result: bool) -> None:
        phase, side = divmod(request.user, 2)
        fault, chance = self._faults[side], self._chance.random()
        fails = chance < max(fault.error_rate, self._load.error_rate)
        status = (500 if fails else 200) if is_result else 503
        seconds = self._timeline.now - request.sent_at
        has_nan = status == 200 and self._chance.random() < fault.nan_rate
        self._evidence.count(NAME, phase, bool(side), status, seconds, has_nan)
        self._candidates += side

    def _judge(self) -> None:
        self._reason = problem(self._evidence.read(NAME), self._phase, self._config)
        if self._reason or self._timeline.now >= self._ends_at:
            self._timeline.stop()
        self._timeline.at(self._timeline.now + 0.25, self._judge)
