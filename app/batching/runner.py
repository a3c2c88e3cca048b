"""What takes a model's jobs: the Batcher, or Unbatched, the naive API's way."""

from typing import Protocol

from app.batching.job import Job


class Runner(Protocol):
    """Takes jobs and sees to it that each gets exactly one answer."""

    @property
    def runs_in_submit(self) -> bool:
        """Whether `submit` takes as long as the model does."""
        ...

    def start(self) -> None:
        """Get ready for jobs."""
        ...

    def submit(self, job: Job) -> None:
        """Accept a job, or raise; the answer comes through `job.wait()`.

        Raises:
            CannotMeetDeadline: the answer would come after the job's deadline.
            Late: the deadline has passed.
            QueueFull: no room now.
            TooLarge: more rows than there ever is room for.
            Stopping: closed.
        """
        ...

    def stuck_s(self) -> float:
        """For how many seconds jobs have waited without any progress; 0: they don't."""
        ...

    def close(self, timeout_s: float) -> None:
        """Finish accepted jobs for so long, fail the rest, close the engine."""
        ...
