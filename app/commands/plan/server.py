"""One server in virtual time: its event loop, its Batcher, and its device."""

import math
import random
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.batching.fair_queue import JobSlice
from app.batching.job import Job
from app.batching.model_log import ModelLog
from app.batching.release import release_for
from app.commands.plan.batch_seconds import BatchSeconds
from app.commands.plan.timeline import Timeline
from app.engines.base import Tensors
from app.engines.simulated import SimulatedEngine, Simulation
from app.errors import BasketError
from app.settings import Settings

_ROW: Tensors = {"input": np.zeros((1, 1), np.float32)}
# Not run: only its signature is read.
_ENGINE: Any = SimulatedEngine(Simulation(input_shape=(1,), outputs=1))


@dataclass(frozen=True)
class ServerPlan:
    """A server's limits, the seconds of its batches, and those besides.

    Each request occupies the server's event loop for `overhead_s`: half of it before
    its row is queued, and half of it after its batch.
    """

    settings: Settings
    batches: BatchSeconds
    overhead_s: float

    @property
    def alone_s(self) -> float:
        """The response time of a request that meets no other."""
        timeout_s = (self.settings.batch_timeout_micros or 0) / 1e6
        waits_s = timeout_s if self.batches.max_batch_size > 1 else 0.0
        batch_s = self.batches.of(1) + statistics.median(self.batches.after(math.inf))
        return self.overhead_s + waits_s + batch_s

    @property
    def most_per_s(self) -> float:
        """The requests per second that device and event loop can run."""
        rows_per_s = self.batches.most_rows_per_s()
        return min(rows_per_s, 1 / self.overhead_s if self.overhead_s else math.inf)


class PlannedJob(Job):
    """A request for one row, sent at `sent_at` in virtual time by user `user`."""

    def __init__(self, sent_at: float, user: int) -> None:
        """Store when it was sent; its server sets when it was queued."""
        super().__init__(_ROW, 0.0)
        self.sent_at, self.user = sent_at, user


# Called with an answered request, and whether it was answered with a result.
Done = Callable[[PlannedJob, bool], None]


class SimulatedServer:
    """A server; `unanswered` requests are on it now.

    So far `rows` have run in `batches`, which took `busy_s`.
    """

    def __init__(self, plan: ServerPlan, timeline: Timeline, done: Done) -> None:
        """Store the parts."""
        self._timeline, self._done = timeline, done
        self._loop_s = plan.overhead_s / 2
        self._loop_free_at = 0.0
        self._timeout_s = plan.settings.request_timeout_ms / 1000
        self._executor = _VirtualExecutor(plan, timeline, self._ended)
        release = release_for(plan.settings, self._executor.expected_s)
        self._batcher = Batcher(
            *(self._executor, release, plan.settings.max_rows, _Unobserved()),
            *(timeline.clock, _hold),
        )
        # Which hold may still end, as rows that arrive replace it.
        self._hold_number = 0
        self.unanswered = self.rows = self.batches = 0
        self.busy_s = 0.0

    def receive(self, request: PlannedJob) -> None:
        """Accept a request that arrives now."""
        self.unanswered += 1
        self._on_loop(self._submit, request)

    def _on_loop(self, event: Callable[..., object], *given: object) -> None:
        """Call an event once the event loop has worked for it."""
        free_at = max(self._loop_free_at, self._timeline.now) + self._loop_s
        self._loop_free_at = free_at
        self._timeline.at(free_at, event, *given)

    def _submit(self, request: PlannedJob) -> None:
        request.enqueued_at = self._timeline.now
        request.deadline = request.sent_at + self._timeout_s
        request.wake = self._failed
        try:
            self._batcher.submit(request)
        except BasketError:
            self._failed([request])
            return
        if not self._executor.is_busy:
            self._run_next()

    def _run_next(self, hold_number: int | None = None) -> None:
        """Start the next batch, unless it is held; a replaced hold does nothing."""
        if hold_number is not None and hold_number != self._hold_number:
            return
        self._hold_number += 1
        try:
            while not self._executor.is_busy:
                self._batcher.run_next()
        except _Held as held:
            if held.for_s is not None:
                until = self._timeline.now + held.for_s
                self._timeline.at(until, self._run_next, self._hold_number)

    def _ended(self, batch: Sequence[JobSlice], took_s: float) -> None:
        self.rows += len(batch)
        self.batches += 1
        self.busy_s += took_s
        for job, _, _ in batch:
            self._on_loop(self._answer, job, True)
        self._run_next()

    def _failed(self, requests: Sequence[Job]) -> None:
        for request in requests:
            self._on_loop(self._answer, request, False)

    def _answer(self, request: PlannedJob, is_result: bool) -> None:
        self.unanswered -= 1
        self._done(request, is_result)


class _Held(Exception):
    """The next batch may start in `for_s` seconds; None: there is none."""

    def __init__(self, for_s: float | None) -> None:
        super().__init__()
        self.for_s = for_s


def _hold(condition: threading.Condition, for_s: float | None) -> None:
    """End the wait for a batch, where a thread would wait."""
    del condition
    raise _Held(for_s)


class _VirtualExecutor(Executor):
    """An Executor whose batches end in virtual time; `ended` is called after each.

    It is not busy where none of the batches that it was given runs.
    """

    def __init__(
        self, plan: ServerPlan, timeline: Timeline, ended: Callable[..., None]
    ) -> None:
        largest = plan.batches.max_batch_size
        sizes = plan.settings.allowed_batch_sizes or range(1, largest + 1)
        super().__init__(
            _ENGINE,
            _Unobserved(),
            ModelLog("plan", 1),
            [size for size in sizes if size <= largest],
            clock=timeline.clock,
        )
        self._seconds, self._timeline, self._ended = plan.batches, timeline, ended
        self._chance = random.Random(1)  # noqa: S311

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def execute(self, batch: Sequence[JobSlice], *, back_to_back: bool = False) -> None:
        rows, started_at = len(batch), self._clock()
        self._running = rows, started_at
        added_s = self._seconds.after(started_at - self._finished_at)
        took_s = self._seconds.of(rows) + self._chance.choice(added_s)
        end_at = started_at + max(took_s, 0.0)
        self._timeline.at(end_at, self._finish, batch, started_at, back_to_back)

    def _finish(
        self, batch: Sequence[JobSlice], started_at: float, back_to_back: bool
    ) -> None:
        self._running = None
        ended_at = self._end(batch, len(batch), started_at, None, back_to_back)
        self._ended(batch, ended_at - started_at)


class _Unobserved:
    """An Observer that keeps nothing."""

    def batch_ran(
        self,
        rows: int,
        seconds: float,
        batch: Sequence[JobSlice],
        failure: BasketError | None,
    ) -> None:
        pass

    def batch_reran(self) -> None:
        pass

    def batch_limited(self, rows: int) -> None:
        pass

    def rows_waiting(self, rows: int) -> None:
        pass

    def write_calls(self, calls: Sequence[Any]) -> None:
        pass
