"""The naive API, for comparison: one inference for each request."""

import threading
import time

from app.batching.executor import Executor
from app.batching.fair_queue import JobSlice
from app.batching.job import Job
from app.errors import Stopping, too_many_rows


class Unbatched:
    """Runs each job in the request's own thread; a Runner."""

    runs_in_submit = True

    def __init__(self, executor: Executor, max_rows: int) -> None:
        """Store the parts; `max_rows` bounds one request."""
        self._executor = executor
        self._max_rows = max_rows
        self._closed = False
        self._running = 0
        # When a batch of any running job ended, or the first job began.
        self._progress_at = 0.0
        self._changed = threading.Condition()

    def start(self) -> None:
        """Do nothing: there is no thread to start."""

    def submit(self, job: Job) -> None:
        """Run the job in batches of the largest size, or raise as Runner does."""
        if job.rows > self._max_rows:
            raise too_many_rows(self._max_rows, job.rows)
        with self._changed:
            if self._closed:
                raise Stopping("the server is stopping")
            if not self._running:
                self._progress_at = time.monotonic()
            self._running += 1
        try:
            self._run(job)
        finally:
            with self._changed:
                self._running -= 1
                self._close_if_idle()
                self._changed.notify_all()

    def is_idle(self) -> bool:
        """Return whether no job runs."""
        return not self._running

    def stuck_s(self) -> float:
        """Return for how many seconds jobs have run and no batch has ended, else 0."""
        with self._changed:
            return time.monotonic() - self._progress_at if self._running else 0.0

    def close(self, timeout_s: float) -> None:
        """Refuse new jobs and wait for the running ones for at most `timeout_s`.

        The last job to end closes the engine, however long it takes.
        """
        with self._changed:
            self._closed = True
            self._close_if_idle()
            self._changed.wait_for(lambda: not self._running, timeout_s)

    def _close_if_idle(self) -> None:
        if self._closed and not self._running:
            self._executor.close()

    def _run(self, job: Job) -> None:
        step = self._executor.ceilings.limit(job.key)
        for start in range(0, job.rows, step):
            if job.drop_if_dead(time.monotonic()):
                break
            self._executor.execute([JobSlice(job, start, min(start + step, job.rows))])
            self._progress_at = time.monotonic()
