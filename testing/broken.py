"""Basket with a fault in it: what each check of reliability has to catch.

`gunicorn 'testing.broken:broken("swaps")'` serves what wsgi.py serves, broken in
the way that FAULTS names so.
"""

import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from app.api import inference
from app.batching.batch_ceiling import BatchCeilings
from app.batching.batcher import Batcher
from app.batching.executor import Executor
from app.batching.job import Job
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.engines.simulated import SimulatedEngine

_EVER_S = 3600.0


def app_with(fault: str) -> str:
    """What Gunicorn is to import for a fault."""
    return f"testing.broken:broken({fault!r})"


def _before_each_batch(change: Callable[[Tensors, Tensors], None]) -> None:
    """Have `change` see each batch's rows and outputs; it may change the outputs."""
    sound = SimulatedEngine.run

    def run(
        self: SimulatedEngine, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE
    ) -> Tensors:
        outputs = sound(self, batch, signature_name)
        change(batch, outputs)
        return outputs

    SimulatedEngine.run = run


def _with_jobs(kind: type[Job]) -> None:
    inference.Job = kind


def swaps() -> None:
    """In each tenth batch of several rows the first two get each other's answer."""
    several = itertools.count(1)

    def swap(_: Tensors, outputs: Tensors) -> None:
        (rows,) = outputs.values()
        if len(rows) > 1 and next(several) % 10 == 0:
            rows[:2] = rows[[1, 0]]

    _before_each_batch(swap)


def loses() -> None:
    """Each hundredth job never hears of its answer."""
    jobs = itertools.count(1)

    class Forgotten(Job):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._is_lost = next(jobs) % 100 == 0

        def add(self, *args: Any) -> bool:
            return not self._is_lost and super().add(*args)

    _with_jobs(Forgotten)


def leaks() -> None:
    """Each batch leaves 50 KiB, a descriptor and a thread behind."""
    kept: list[Any] = []

    def leak(_: Tensors, __: Tensors) -> None:
        kept.append(np.ones(50 << 7))
        if len(kept) % 20 == 0:
            kept.append(os.open(os.devnull, os.O_RDONLY))
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    _before_each_batch(leak)


def never_late() -> None:
    """No deadline is kept: all that is accepted is computed and answered, some day."""

    class Patient(Job):
        def __init__(self, inputs: Tensors, deadline: float, *rest: Any, **named: Any):
            super().__init__(inputs, deadline + _EVER_S, *rest, **named)

    _with_jobs(Patient)


def computes_late() -> None:
    """Who waits is told at the deadline, but the rows run all the same."""
    Batcher._check_deadline = lambda *_: None
    Job.drop_if_dead = lambda *_: False


def first_come() -> None:
    """All clients are one to the queue: who comes first is served first."""

    class Anybody(Job):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.client = ""

    _with_jobs(Anybody)


def runs_abandoned() -> None:
    """Nobody looks whether a client is still there."""

    class Stays(Job):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.is_disconnected = lambda: False

    _with_jobs(Stays)


def gives_up() -> None:
    """A batch that failed is never run again: all of its rows fail."""
    Executor._parts = lambda *_: []


def forgets() -> None:
    """What fits into the device's memory is forgotten with each batch that fits."""

    def fitted(self: BatchCeilings, *_: object) -> bool:
        self._searches.clear()
        return True

    BatchCeilings.fitted = fitted


def fall_together() -> None:
    """A worker ends when one of its siblings does."""
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
    """The application, broken."""
    FAULTS[fault]()
    return importlib.import_module("wsgi").app
