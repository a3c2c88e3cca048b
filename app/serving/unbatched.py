"""The naive API's way, for comparison: one request, one inference."""

import threading
import time

from app.errors import Stopping, TooLarge
from app.serving.executor import Executor
from app.serving.job import Job
from app.serving.line import Piece


class Unbatched:
    """Runs each job in the request's own thread; a Runner."""

    runs_in_submit = True

    def __init__(self, executor: Executor, max_rows: int) -> None:
        """Store the parts; `max_rows` bounds one request."""
        self._executor = executor
        self._max_rows = max_rows
        self._closed = False
        # When each job that runs began.
        self._running: dict[Job, float] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, job: Job) -> None:
        """Run the job at once; it is answered on return.

        It runs whole, or in batches of the largest size there is.

        Raises:
            TooLarge: more rows than one request may have.
            Stopping: closed.
        """
        if job.rows > self._max_rows:
            raise TooLarge(f"{job.rows} rows in one request; at most {self._max_rows}")
        with self._changed:
            if self._closed:
                raise Stopping("the server is stopping")
            self._running[job] = time.monotonic()
        try:
            self._run(job)
        finally:
            with self._changed:
                del self._running[job]
                self._changed.notify_all()

    def stuck_s(self) -> float:
        """For how many seconds the job that came first has run; 0: none does."""
        with self._changed:
            began_at = min(self._running.values(), default=None)
        return 0.0 if began_at is None else time.monotonic() - began_at

    def close(self, timeout_s: float) -> None:
        """Let no more jobs in, wait for those that run, and close the engine."""
        with self._changed:
            self._closed = True
            done = self._changed.wait_for(lambda: not self._running, timeout_s)
        if done:
            self._executor.close()

    def _run(self, job: Job) -> None:
        step = self._executor.max_batch_size
        for start in range(0, job.rows, step):
            if job.drop_if_dead(time.monotonic()):
                break
            self._executor.execute([Piece(job, start, min(start + step, job.rows))])
