"""Whoever counts what a model does, as the serving room sees it."""

from collections.abc import Mapping
from typing import Protocol


class Observer(Protocol):
    """Whoever counts what a model does; telemetry is one."""

    def batch_ran(self, rows: int, seconds: float) -> None:
        """A batch ran, well or not."""
        ...

    def batch_reran(self) -> None:
        """A part of a batch that had failed ran once more, well or not."""
        ...

    def batch_limited(self, rows: int) -> None:
        """A batch may have so many rows from now on: the device's memory."""
        ...

    def rows_waiting(self, rows: int) -> None:
        """So many rows now stand in the queue."""
        ...

    def job_left_queue(self, seconds: float) -> None:
        """A job waited so long for its first row to run, or to fail before."""
        ...

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        """A request that got its answer spent so many seconds in each stage."""
        ...

    def request_answered(self, status: int, seconds: float) -> None:
        """A request got this HTTP status so long after it arrived."""
        ...
