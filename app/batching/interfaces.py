"""Interfaces: Runner runs a model's jobs, Observer counts requests and batches."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from app.batching.fair_queue import JobSlice
from app.batching.job import Job
from app.errors import BasketError


class Runner(Protocol):
    """Accepts jobs and gives each exactly one answer: a Batcher, or Unbatched."""

    @property
    def runs_in_submit(self) -> bool:
        """Whether `submit` runs the model, and so takes as long as the model does."""

    def start(self) -> None:
        """Start the threads that run jobs."""

    def submit(self, job: Job) -> None:
        """Accept a job, which gets an answer, or raise.

        Raises:
            CannotMeetDeadline: the answer would come after the job's deadline.
            Late: the deadline has passed.
            QueueFull: the queue has too little free capacity now.
            TooLarge: the job has more rows than the queue's capacity.
            Stopping: the runner is closed.
        """

    def is_idle(self) -> bool:
        """Return whether no job waits or runs; cheap enough to ask before each job."""

    def stuck_s(self) -> float:
        """Return for how many seconds jobs have waited without progress, else 0."""

    def close(self, timeout_s: float) -> None:
        """Drain for at most `timeout_s`, fail the rest, and close the engine."""


class Observer(Protocol):
    """Counts requests and batches of one version, from any thread.

    The calls made for each request must be cheap. `app.telemetry.ModelMetrics`
    only appends a record in them, and writes it at the next `telemetry.flush`.
    """

    def batch_ran(
        self,
        rows: int,
        seconds: float,
        batch: Sequence[JobSlice],
        failure: BasketError | None,
    ) -> None:
        """Count a batch that ended just now, before its jobs are answered."""

    def batch_reran(self) -> None:
        """Count a rerun of a part of a failed batch, whether or not it fails."""

    def batch_limited(self, rows: int) -> None:
        """Set the batch ceiling, as the device's memory allows."""

    @property
    def rows_waiting(self) -> Callable[[int], object]:
        """What sets the number of rows in the queue; called for each job."""

    def job_left_queue(self, seconds: float) -> None:
        """Count the time until a job's first row ran, or until the job failed."""

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        """Count an answered request's seconds in each stage.

        The mapping has all of `totals.STAGES`, and does not change after the call.
        """

    def request_answered(self, status: int, seconds: float) -> None:
        """Count a request by its HTTP status, with the seconds since its arrival."""
