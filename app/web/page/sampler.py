"""Sampling of the metrics, once a second and by one process of a server."""

import fcntl
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app import telemetry
from app.gpus import MemoryReader
from app.totals import Sums
from app.web.page.observed import Observed
from app.web.page.processes import engines, memory_mib, processes
from app.web.page.ring import LineRing
from app.web.page.samples import sample_of

KEPT = 300
_INTERVAL_S = 1.0
_log = logging.getLogger(__name__)


class Sampler:
    """Appends samples, if no other process does, and flushes this process's errors.

    The process that has locked a file is the one that samples. The kernel unlocks the
    file when the process ends, however it ends.
    """

    def __init__(
        self,
        observed: Observed,
        last: LineRing,
        lock: Path | None,
        gpu_memory: MemoryReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the parts.

        `last` keeps the sums of the last sample. Without a lock there is one process.
        """
        self._observed = observed
        self._last = last
        self._lock = lock
        self._gpu_memory = gpu_memory
        self._clock = clock
        # The descriptor of the locked file, which stays open.
        self._locked: int | None = None
        # The error of the last sample.
        self._problem = ""
        # A server that stops does not wait for it.
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Sample each second; may be called twice."""
        if not self._thread.ident:
            self._thread.start()

    def tick(self) -> None:
        """Take a sample, and flush errors; log a problem once."""
        problem = ""
        try:
            self._observed.errors.flush()
            if self._is_ours():
                self._sample()
        except Exception as error:  # must not end the thread
            problem = str(error) or type(error).__name__
        if problem and problem != self._problem:
            _log.error("the page has no samples or errors: %s", problem)
        self._problem = problem

    def _run(self) -> None:
        for _ in itertools.count():
            began_at = self._clock()
            self.tick()
            time.sleep(max(began_at + _INTERVAL_S - self._clock(), 0))

    def _is_ours(self) -> bool:
        """Return whether this process is the one that samples; become it if it can."""
        if self._lock is None or self._locked is not None:
            return True
        descriptor = os.open(self._lock, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._locked = descriptor
        return True

    def _sample(self) -> None:
        now, at = self._clock(), time.time()
        # Another process may have taken the last sample.
        before = next(self._last.newest_first(), None)
        if before is None:
            self._keep(now, 0, telemetry.totals())
            return
        seconds = now - before["clock"]
        if seconds < _INTERVAL_S / 2:
            return  # this process has just followed another one
        sums = telemetry.totals()
        # A page that is open over a restart asks for what is behind its last.
        number = max(before["n"] + 1, int(at))
        # First, so that a process that is killed in between leaves nothing to be
        # counted twice.
        self._keep(now, number, sums)
        living = processes(self._observed.notes)
        sample: dict[str, Any] = {
            "n": number,
            "t": round(at, 3),
            **sample_of(Sums.from_json(before["sums"]), sums, seconds, engines(living)),
            "memory_mib": round(memory_mib(living), 1),
            "gpus": [asdict(each) for each in self._gpu_memory.read()],
        }
        self._observed.samples.append([sample])

    def _keep(self, clock: float, number: int, sums: Sums) -> None:
        self._last.append([{"clock": clock, "n": number, "sums": sums.to_json()}])
