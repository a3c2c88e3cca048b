"""The Batcher: request threads fill its bounded queue, one thread drains it."""

import math
import queue
import threading
import time
from collections.abc import Callable

from app.batching.executor import Executor
from app.batching.interfaces import Observer
from app.batching.job import Job, Key
from app.batching.job_queue import JobQueue, Wait
from app.batching.release import Release
from app.errors import (
    CannotMeetDeadline,
    Late,
    ModelFailed,
    QueueFull,
    Stopping,
    too_many_rows,
)


class Batcher:
    """Gathers the rows of jobs into batches for one engine; a Runner.

    The batching thread only takes, concatenates, runs and splits rows. It decodes and
    encodes nothing, and notifies request threads by releasing a lock, so that the next
    batch starts before the last one's responses are written.
    """

    runs_in_submit = False

    def __init__(
        self,
        executor: Executor,
        release: Release,
        max_rows: int,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = threading.Condition.wait,
    ) -> None:
        """Store the parts; `max_rows` is the queue's capacity.

        With `clock` and `wait` in virtual time, call `run_next` in place of `start`.
        """
        self._executor = executor
        executor.before_notify = self._batch_finished
        self._max_rows = max_rows
        self._clock = clock
        self._queue = JobQueue(max_rows, release, clock, wait, observer.rows_waiting)
        # Rows of the batch that ran last.
        self._last_rows = 0
        # Estimate of the longest time from submit to the end of a job's batch.
        self._longest_s = 0.0
        self._thread = threading.Thread(
            target=self._drain, name="batching", daemon=True
        )

    def start(self) -> None:
        """Start the batching thread, once."""
        if not self._thread.ident:
            self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue the job without waiting, or raise as Runner does."""
        if job.rows > self._max_rows:
            raise too_many_rows(self._max_rows, job.rows)
        left_s = job.deadline - self._clock()
        # A deadline after the longest possible queue time needs no estimate.
        if left_s - job.reserve_s <= self._longest_s:
            self._check_deadline(job, left_s)
        try:
            self._queue.put(job)
        except queue.Full:
            waiting, running = self._queue.qsize(), self._executor.running()
            raise QueueFull(
                f"the queue holds {waiting} of at most {self._max_rows} rows, and "
                f"{job.rows} more do not fit",
                max(1, math.ceil(self._expected_s(waiting, job.key, running))),
            ) from None

    def is_idle(self) -> bool:
        """Return whether no row is queued and the batching thread waits for rows."""
        return self._queue.is_idle() and self._executor.running() is None

    def stuck_s(self) -> float:
        """Return for how many seconds the batch has run; inf if the thread died."""
        running = self._executor.running()
        if running is not None:
            return running[1]
        died = self._thread.ident and not self._thread.is_alive()
        return math.inf if died and self._queue.qsize() else 0.0

    def close(self, timeout_s: float) -> None:
        """Shut down gracefully; may be called twice.

        Refuse new jobs, drain the queue for at most `timeout_s` seconds, and answer
        the rest with Stopping; the thread then closes the engine. A batch that hangs
        in the engine cannot be stopped: its jobs are answered, its thread stays.
        """
        self._queue.close()
        if self._thread.ident:
            self._thread.join(timeout_s)
        left = self._queue.clear()
        for job in left:
            job.fail(Stopping("the server is stopping"))
        if left:
            text = "stopped with %d requests unanswered: 503"
            self._executor.log.warning(text, len(left))
        if not self._thread.ident:
            self._executor.close()

    def run_next(self) -> bool:
        """Wait for the next batch and run it; return False once closed and drained."""
        batch = self._queue.take(self._executor.ceilings.limit)
        if not batch:
            return batch is not None
        try:
            self._executor.execute(batch, back_to_back=self._queue.back_to_back)
        except Exception:  # a bug outside the model must not end the thread either
            self._executor.log.exception("a batch could not be run")
            for job, _, _ in batch:
                job.fail(ModelFailed("the batch could not be run"))
        self._last_rows = self._queue.batch_rows
        return True

    def _drain(self) -> None:
        # A batch lives in a frame of its own, so that an idle thread holds no rows.
        try:
            while self.run_next():
                pass
        finally:
            self._executor.close()

    def _batch_finished(self) -> None:
        self._queue.finished()
        executor = self._executor
        # A full queue before as many rows, and the batch that runs.
        batches = math.ceil(2 * self._max_rows / executor.ceilings.lowest()) + 1
        whole_s = batches * executor.expected_s(executor.max_batch_size)
        self._longest_s = whole_s + executor.times.margin_s()

    def _check_deadline(self, job: Job, left_s: float) -> None:
        """Admission control: refuse a job that cannot be answered in time.

        An idle engine accepts any job, so that a wrong estimate corrects itself.
        """
        if left_s <= 0:
            raise Late("the request's deadline passed before its rows were run")
        ahead, running = self._queue.rows_ahead(job), self._executor.running()
        if not ahead and running is None:
            return
        wait_s = self._expected_s(ahead + job.rows, job.key, running) + job.reserve_s
        if wait_s > left_s:
            raise CannotMeetDeadline(
                f"the answer would take about {wait_s:.2f} s, and the request's "
                f"deadline is {left_s:.2f} s away",
                math.ceil(wait_s - left_s),
            )

    def _expected_s(
        self, rows: int, key: Key, running: tuple[int, float] | None
    ) -> float:
        """Return in how many seconds the next `rows` will have run; 0: not known.

        The sum of what is left of the `running` batch, the full batches, and a last
        one, assumed to be as large as the one before.
        """
        expected_s, limit = (
            self._executor.expected_s,
            self._executor.ceilings.limit(key),
        )
        full, rest = divmod(rows, limit)
        run_s = self._executor.times.margin_s()
        if full:
            run_s += full * expected_s(limit)
        if rest:
            run_s += expected_s(min(max(rest, self._last_rows), limit))
        if running is not None:
            running_rows, for_s = running
            run_s += max(expected_s(running_rows) - for_s, 0.0)
        return run_s
