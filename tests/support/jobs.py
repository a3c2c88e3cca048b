"""Jobs, executors, a fake clock and a recording Observer for tests of batching."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.batching.executor import Executor
from app.batching.fair_queue import JobSlice
from app.batching.interfaces import Observer, Runner
from app.batching.job import Job
from app.batching.model_log import ModelLog
from app.engines.base import Engine, Tensors

_TIMEOUT_S = 10


def job(
    *values: float,
    width: int = 1,
    dtype: type = np.float32,
    deadline: float | None = None,
    is_abandoned: bool = False,
    client: str = "",
) -> Job:
    """Return a job with a row for each value, which is that value `width` times."""
    rows = np.repeat(np.array(values, dtype), width).reshape(len(values), width)
    if deadline is None:
        deadline = time.monotonic() + _TIMEOUT_S
    made = Job({"input": rows}, deadline, client=client)
    made.is_abandoned = is_abandoned
    return made


def submit(runner: Runner, *values: float, **rest: Any) -> Job:
    """Submit a job with a row for each value, and return it."""
    submitted = job(*values, **rest)
    runner.submit(submitted)
    return submitted


def outputs(job: Job) -> Tensors:
    """Wait for the answer and return the outputs, or raise the job's error."""
    job.wait()
    return job.result()


def answered(job: Job) -> list[float]:
    """Wait for the answer and return the first value of each of its rows."""
    return outputs(job)["output"][:, 0].tolist()


def outcome(job: Job) -> list[float] | Exception:
    """Return the rows or the error of an answered job, whatever its deadline."""
    assert job.is_answered()
    job.deadline = time.monotonic() + _TIMEOUT_S
    try:
        return answered(job)
    except Exception as error:
        return error


def executor(
    engine: Engine,
    max_batch_size: int,
    observer: Observer | None = None,
    sizes: Sequence[int] = (),
    **rest: Any,
) -> Executor:
    """Return an Executor for batches of any size up to the limit, or of `sizes`."""
    sizes = sizes or range(1, max_batch_size + 1)
    return Executor(engine, observer or Notes(), ModelLog("m", 1), sizes, **rest)


def run_batch(executor: Executor, *counts: int, first: float = 0.0) -> list[Job]:
    """Run a job for each count of rows, all in one batch; rows count from `first`."""
    jobs = []
    for count in counts:
        jobs.append(job(*(first + row for row in range(count))))
        first += count
    executor.execute([JobSlice(each, 0, each.rows) for each in jobs])
    return jobs


class FakeTime:
    """A clock that advances only in `wait` and `pass_s`.

    A wait returns at once, at the time of the scheduled event that notifies it or at
    its timeout, whichever is first.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.waits: list[float | None] = []
        # How often the last wait was notified.
        self.notified = 0
        self._events: deque[tuple[float, Callable[[], object]]] = deque()

    def clock(self) -> float:
        return self.now

    def _notify(self, n: int = 1) -> None:
        self.notified += n

    def at(self, when: float, event: Callable[[], object]) -> None:
        """Schedule an event; call this in order of time."""
        self._events.append((when, event))

    def pass_s(self, seconds: float) -> None:
        """Let time pass, with the events in it."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, event = self._events.popleft()
            event()
        self.now = until

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Let events happen until one notifies the condition, or until the timeout."""
        self.waits.append(timeout)
        until = math.inf if timeout is None else self.now + timeout
        self.notified = 0
        condition.notify = self._notify  # type: ignore[method-assign]
        condition.release()
        try:
            while not self.notified and self._events and self._events[0][0] <= until:
                self.now, event = self._events.popleft()
                event()
        finally:
            condition.acquire()
            del condition.notify
        if not self.notified:
            assert until < math.inf, "no event would ever end this wait"
            self.now = until


class Notes:
    """An Observer that records its calls."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.reruns = 0
        self.limits: list[int] = []
        self.waiting: list[int] = []
        self.requests: list[int] = []

    def batch_ran(self, rows, seconds, batch, failure) -> None:
        assert seconds >= 0
        self.batches.append(rows)

    def batch_reran(self) -> None:
        self.reruns += 1

    def batch_limited(self, rows: int) -> None:
        self.limits.append(rows)

    def rows_waiting(self, rows: int) -> None:
        self.waiting.append(rows)

    def job_left_queue(self, seconds: float) -> None:
        assert seconds >= 0

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        assert all(seconds >= 0 for seconds in stages_s.values())

    def request_answered(self, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.requests.append(status)
