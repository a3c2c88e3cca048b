"""The naive API's way, for comparison: one request, one inference."""

import threading
import time

from app.batching.executor import Executor
from app.batching.fair_queue import Piece
from app.batching.job import Job
from app.errors import Stopping, TooLarge


class Unbatched:
    """Runs each job in the request's own thread; a Runner."""

    runs_in_submit = True

    def __init__(self, executor: Executor, max_rows: int) -> None:
        """Store the parts; `max_rows` bounds one request."""
        self._executor = executor
        self._max_rows = max_rows
        self._closed = False
        # How many jobs run, and when any batch of theirs ended, or the first began.
        self._running = 0
        self._moved_at = 0.0
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
            if not self._running:
                self._moved_at = time.monotonic()
            self._running += 1
        try:
            self._run(job)
        finally:
            with self._changed:
                self._running -= 1
                self._close_if_over()
                self._changed.notify_all()

    def stuck_s(self) -> float:
        """For how many seconds jobs have run and no batch has ended; 0: none runs."""
        with self._changed:
            return time.monotonic() - self._moved_at if self._running else 0.0

    def close(self, timeout_s: float) -> None:
        """Let no more jobs in, and wait for those that run.

        The engine is closed with the last one, however long that takes.
        """
        with self._changed:
            self._closed = True
            self._close_if_over()
            self._changed.wait_for(lambda: not self._running, timeout_s)

    def _close_if_over(self) -> None:
        if self._closed and not self._running:
            self._executor.close()

    def _run(self, job: Job) -> None:
        step = self._executor.max_batch_size
        for start in range(0, job.rows, step):
            if job.drop_if_dead(time.monotonic()):
                break
            self._executor.execute([Piece(job, start, min(start + step, job.rows))])
            self._moved_at = time.monotonic()
