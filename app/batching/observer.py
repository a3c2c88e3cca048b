"""The interface through which requests and batches are counted."""

from collections.abc import Mapping
from typing import Protocol


class Observer(Protocol):
    """Counts requests and batches of one version, from any thread.

    The calls made for each request must be cheap. `app.telemetry.ModelMetrics`
    only appends a record in them, and writes it at the next `telemetry.flush`.
    """

    def batch_ran(self, rows: int, seconds: float) -> None:
        """Count a batch that has run or failed."""
        ...

    def batch_reran(self) -> None:
        """Count a rerun of a part of a failed batch, whether or not it fails."""
        ...

    def batch_limited(self, rows: int) -> None:
        """Set the batch ceiling, as the device's memory allows."""
        ...

    def rows_waiting(self, rows: int) -> None:
        """Set the number of rows in the queue."""
        ...

    def job_left_queue(self, seconds: float) -> None:
        """Count the time until a job's first row ran, or until the job failed."""
        ...

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        """Count an answered request's seconds in each stage.

        The mapping has all of `telemetry.STAGES`, and does not change after the call.
        """
        ...

    def request_answered(self, status: int, seconds: float) -> None:
        """Count a request by its HTTP status, with the seconds since its arrival."""
        ...
