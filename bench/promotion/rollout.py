"""One rollout in virtual time: two versions with queues of their own on one device."""

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.commands.plan.batch_seconds import BatchSeconds
from app.commands.plan.server import Request, ServerPlan, SimulatedServer
from app.commands.plan.timeline import Timeline
from app.promotion.evidence import Evidence
from app.promotion.judgment import problem
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig

_JUDGED_EVERY_S = 0.25
# A device that was idle for so long has rested.
_REST_S = 0.01
_NAME = "model 2"


@dataclass(frozen=True)
class Workload:
    """What both versions get: `rate` requests/s at random (Poisson), in bursts or not.

    A batch takes `base_s` and `row_s` for each row, on a device that both share,
    or each on its own.
    `after_rest_s`: more where a version's last batch ended 10 ms before. Every
    `pause_every_s` on average the device stops for up to `pause_s`. In bursts the rate
    is tripled for a tenth of the time. `error_rate` is that of both versions.
    """

    rate: float
    base_s: float
    row_s: float
    after_rest_s: float = 0.0
    pause_every_s: float = 0.0
    pause_s: float = 0.0
    bursts: bool = False
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


class _Device(BatchSeconds):
    """The seconds of one version's batches, with the wait for the device."""

    def __init__(self, shared: "_Shared", slowdown: float) -> None:
        load, settings = shared.load, shared.settings
        times = {n: load.base_s + load.row_s * n for n in (1, settings.max_batch_size)}
        times = {n: slowdown * each_s for n, each_s in times.items()}
        super().__init__(times, settings, {_REST_S: [load.after_rest_s]})
        self._shared = shared

    def of(self, rows: int) -> float:
        """Return the seconds until a batch that starts now ends."""
        return self._shared.occupy(super().of(rows))


class _Shared:
    """The device: it runs one batch at a time, and pauses by chance."""

    def __init__(self, load: Workload, timeline: Timeline) -> None:
        self.load, self.settings, self._timeline = load, Settings(), timeline
        self._free_at = 0.0

    def occupy(self, seconds: float) -> float:
        self._free_at = max(self._free_at, self._timeline.now) + seconds
        return self._free_at - self._timeline.now


class Rollout:
    """A rollout by steps; its phase 0 is before, when only the old version serves."""

    def __init__(
        self, load: Workload, fault: Fault, config: PromotionConfig, seed: int
    ) -> None:
        """Store the parts; the same seed gives the same rollout."""
        self._load, self._fault, self._config = load, fault, config
        self._chance = random.Random(seed)  # noqa: S311
        self._timeline = Timeline()
        self._devices = [_Shared(load, self._timeline) for _ in range(2)]
        if load.is_shared:
            self._devices[1] = self._devices[0]
        self._evidence = Evidence(None, self._timeline.clock)
        settings = Settings()
        self._sides = [
            SimulatedServer(
                ServerPlan(settings, _Device(device, slowdown), 0.0005),
                *(self._timeline, self._done),
            )
            for device, slowdown in zip(
                self._devices, (1.0, fault.slowdown), strict=True
            )
        ]
        self._phase, self._share, self._candidates = 0, 0.0, 0
        self._ends_at = 0.0
        self._rate = load.rate
        self._reason = ""

    def run(self, before_s: float) -> Outcome:
        """Run to its end, or until the candidate is judged to be worse.

        The version before serves alone for `before_s`.
        """
        self._timeline.at(0.0, self._arrive)
        if self._load.pause_every_s:
            self._timeline.at(self._after(self._load.pause_every_s), self._pause)
        if self._load.bursts:
            self._timeline.at(0.0, self._burst, 1.0)
        config = self._config
        for number, step in enumerate(config.steps):
            begins_at = before_s + number * config.step_s
            self._timeline.at(begins_at, self._enter, number + 1, step / 100)
        self._ends_at = before_s + len(config.steps) * config.step_s
        watch = len(config.steps) + 1
        self._timeline.at(self._ends_at, self._enter, watch, 1.0)
        self._ends_at += config.watch_s
        self._timeline.at(before_s, self._judge)
        self._timeline.run()
        return Outcome(self._reason, self._timeline.now - before_s, self._candidates)

    def _after(self, mean_s: float) -> float:
        return self._timeline.now + self._chance.expovariate(1 / mean_s)

    def _enter(self, phase: int, share: float) -> None:
        self._phase, self._share = phase, share

    def _arrive(self) -> None:
        side = self._chance.random() < self._share
        # The user's number says to which side a request belongs, and in which phase.
        self._sides[side].receive(Request(self._timeline.now, 2 * self._phase + side))
        self._timeline.at(self._after(1 / self._rate), self._arrive)

    def _burst(self, factor: float) -> None:
        self._rate = factor * self._load.rate
        mean_s = 9.0 if factor == 1 else 1.0
        self._timeline.at(self._after(mean_s), self._burst, 3.0 if factor == 1 else 1.0)

    def _pause(self) -> None:
        seconds = self._chance.uniform(0, self._load.pause_s)
        for device in {id(each): each for each in self._devices}.values():
            device.occupy(seconds)
        self._timeline.at(self._after(self._load.pause_every_s), self._pause)

    def _done(self, request: Request, is_result: bool) -> None:
        phase, side = divmod(request.user, 2)
        fault = self._fault if side else replace(self._fault, error_rate=0, nan_rate=0)
        chance = self._chance.random()
        status = 200 if is_result else 503
        if is_result and chance < max(fault.error_rate, self._load.error_rate):
            status = 500
        seconds = self._timeline.now - request.sent_at
        has_nan = status == 200 and self._chance.random() < fault.nan_rate  # noqa: PLR2004
        self._evidence.count(_NAME, phase, bool(side), status, seconds, has_nan)
        self._candidates += side

    def _judge(self) -> None:
        self._reason = problem(self._evidence.read(_NAME), self._phase, self._config)
        if self._reason or self._timeline.now >= self._ends_at:
            self._timeline.stop()
            return
        self._timeline.at(self._timeline.now + _JUDGED_EVERY_S, self._judge)
