"""Basket with a fault that a reliability check has to detect.

`gunicorn 'testing.broken:broken("swaps")'` serves wsgi.py's application with the
fault of that name in FAULTS.
"""

import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.api.inference import passage
from app.batching import executor
from app.batching.batch_ceiling import BatchCeilings
from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.batching.fair_queue import JobSlice
from app.batching.job import Job
from app.batching.retry_budget import RetryBudget
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.engines.simulated import SimulatedEngine

_AN_HOUR_S = 3600.0


def app_with(fault: str) -> str:
    """Return the application with this fault, as Gunicorn's argument."""
    return f"testing.broken:broken({fault!r})"


def _before_each_batch(change: Callable[[Tensors, Tensors], None]) -> None:
    """Call `change` with each batch's rows and outputs, which it may change."""
    original = SimulatedEngine.run

    def run(
        self: SimulatedEngine, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE
    ) -> Tensors:
        outputs = original(self, batch, signature_name)
        change(batch, outputs)
        return outputs

    SimulatedEngine.run = run


def _with_jobs(kind: type[Job]) -> None:
    passage.Job = kind


def swaps() -> None:
    """Swap the first two answers in each tenth batch of several rows."""
    batches = itertools.count(1)

    def swap(_: Tensors, outputs: Tensors) -> None:
        (rows,) = outputs.values()
        if len(rows) > 1 and next(batches) % 10 == 0:
            rows[:2] = rows[[1, 0]]

    _before_each_batch(swap)


def loses() -> None:
    """Never answer each hundredth job."""
    jobs = itertools.count(1)
    original = executor.answer

    def lose(slices: Sequence[JobSlice], *outputs: Any) -> None:
        original([_lost(each) for each in slices], *outputs)

    def _lost(each: JobSlice) -> JobSlice:
        """Return the slice, or each hundredth one of a job that nobody waits for."""
        job, start, stop = each
        return (
            JobSlice(Job(job.inputs, 0.0), start, stop)
            if next(jobs) % 100 == 0
            else each
        )

    executor.answer = lose


def leaks() -> None:
    """Leak 50 KiB a batch, and a file descriptor and a thread every 20 batches."""
    kept: list[Any] = []

    def leak(_: Tensors, __: Tensors) -> None:
        kept.append(np.ones(50 << 7))
        if len(kept) % 20 == 0:
            kept.append(os.open(os.devnull, os.O_RDONLY))
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    _before_each_batch(leak)


def never_late() -> None:
    """Ignore deadlines: compute and answer each accepted request, however late."""

    class Patient(Job):
        def __init__(self, inputs: Tensors, deadline: float, *rest: Any, **named: Any):
            super().__init__(inputs, deadline + _AN_HOUR_S, *rest, **named)

    _with_jobs(Patient)


def computes_late() -> None:
    """Answer at the deadline, but run the rows all the same."""
    Batcher._check_deadline = lambda *_: None
    Job.drop_if_dead = lambda *_: False


def first_come() -> None:
    """Serve first come, first served: the queue treats all clients as one."""

    class Anonymous(Job):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.client = ""

    _with_jobs(Anonymous)


def runs_abandoned() -> None:
    """Run the rows of clients that disconnected."""

    class Connected(Job):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.abandon = lambda: None

    _with_jobs(Connected)


def gives_up() -> None:
    """Never rerun a failed batch: all of its rows fail."""
    Executor._parts = RetryBudget.parts = lambda *_: []


def forgets() -> None:
    """Forget the batch ceilings with each batch that fits."""

    def fitted(self: BatchCeilings, *_: object) -> bool:
        self._searches.clear()
        return True

    BatchCeilings.fitted = fitted


def fall_together() -> None:
    """End each worker when another one ends."""
    folder = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children")

    def watch() -> None:
        seen: set[str] = set()
        while True:
            living = set(folder.read_text().split())
            if seen - living:
                os._exit(1)
            seen |= living
            time.sleep(0.05)

    threading.Thread(target=watch, daemon=True).start()


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        *(swaps, loses, leaks, never_late, computes_late),
        *(first_come, runs_abandoned, gives_up, forgets, fall_together),
    )
}


def broken(fault: str) -> Any:
    """Return the application with this fault."""
    FAULTS[fault]()
    return importlib.import_module("wsgi").app
