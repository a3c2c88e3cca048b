"""Counts answered requests of rollouts in memory that all processes can read."""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.file_stem import file_stem
from app.promotion.counts import PHASES, Counts, Table, pooled
from app.promotion.table_writer import Writer, create, table_in

_log = logging.getLogger(__name__)


class Evidence:
    """Counts of this process's answers by rollout, and of the other processes'.

    Each process has a file for each rollout, which is never shrunk, and which outlives
    a process that is killed. Create it after the fork. Thread-safe.
    """

    def __init__(
        self, folder: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Store the folder, which is created; None: in this process's memory."""
        self._folder, self._clock = folder, clock
        self._lock = threading.Lock()
        self._own: dict[str, Writer] = {}
        self._has_warned = False

    def count(
        self,
        rollout: str,
        phase: int,
        is_candidate: bool,
        status: int,
        seconds: float,
        has_nan: bool,
    ) -> None:
        """Count a request that was answered now, `seconds` after it arrived."""
        with self._lock:
            writer = self._own.get(rollout)
            if writer is None:
                writer = self._own[rollout] = self._create(rollout)
            side = 2 * min(phase, PHASES - 1) + is_candidate
            writer.add(side, status, seconds, has_nan, self._clock())

    def read(self, rollout: str) -> Counts:
        """Return the counts of all processes, also of those that have ended."""
        with self._lock:
            own = self._own.get(rollout)
        tables: list[Table | None] = []
        if own is not None and not own.is_file:
            tables.append(own.table())
        if self._folder is not None:
            try:
                paths = list(self._folder.glob(f"{_prefix(rollout)}*"))
            except OSError as error:
                self._warn("can't be read", error)
                paths = []
            tables += [self._table_of(path) for path in paths]
        return pooled([table for table in tables if table is not None])

    def forget(self, rollout: str) -> None:
        """Remove the counts of all processes; some may be gone already."""
        with self._lock:
            self._own.pop(rollout, None)
        if self._folder is not None:
            try:
                for path in self._folder.glob(f"{_prefix(rollout)}*"):
                    path.unlink(missing_ok=True)
            except OSError as error:
                self._warn("can't be removed", error)

    def _create(self, rollout: str) -> Writer:
        """Return a writer to a new file, or to this process's memory if there is none.

        A file that can't be written does not harm the request that is counted.
        """
        if self._folder is not None:
            name = f"{_prefix(rollout)}{os.getpid()}.{time.time_ns()}"
            try:
                return create(self._folder / name)
            except OSError as error:
                self._warn("can't be written", error)
        return Writer()

    def _table_of(self, path: Path) -> Table | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # another process has forgotten the rollout
            return None
        except OSError as error:
            self._warn("can't be read", error)
            return None
        table = table_in(content)
        if table is None:
            self._warn("are ignored", f"{path.name}: not a table of counts")
        return table

    def _warn(self, what: str, reason: object) -> None:
        """Log a problem, once: it comes back with each request."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("counts of a rollout in %s %s: %s", self._folder, what, reason)


def _prefix(rollout: str) -> str:
    """Return how the names of a rollout's files begin; no glob pattern is in it."""
    return f"{file_stem(rollout)}.counts."
