"""The Batcher: request threads fill its bounded queue, one thread drains it.

Beside it Unbatched, the naive API's way: one request, one inference. Both are
Runners, so that nobody else needs to know which one a model has.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from app.engines.base import Engine
from app.errors import QueueFull, Stopping, TooLarge
from app.serving.execution import Observer, execute
from app.serving.job import Job
from app.serving.job_queue import JobQueue, Piece, is_dead
from app.serving.release import Release

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """Takes jobs and sees to it that each gets exactly one answer."""

    def start(self) -> None:
        """Get ready for jobs."""
        ...

    def submit(self, job: Job) -> None:
        """Accept a job, or raise; the answer comes through `job.wait()`.

        Raises:
            QueueFull: no room now.
            TooLarge: more rows than there ever is room for.
            Stopping: closed.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Finish accepted jobs for so long, fail the rest, close the engine."""
        ...


class Batcher:
    """Gathers the rows of jobs into batches for one engine.

    The batching thread only takes, stacks, runs and slices; it decodes and encodes
    nothing, and wakes request threads by releasing a lock, so that the next batch
    starts before the last one's answers are written out.
    """

    def __init__(
        self,
        engine: Engine,
        release: Release,
        max_batch_size: int,
        max_enqueued_batches: int,
        observer: Observer,
        allowed_batch_sizes: Sequence[int] = (),
    ) -> None:
        """Store the parts; limits are rows and full batches."""
        self._engine = engine
        self._release = release
        self._max_batch_size = max_batch_size
        self._max_rows = max_batch_size * max_enqueued_batches
        self._observer = observer
        self._allowed_batch_sizes = allowed_batch_sizes
        self._queue = JobQueue(self._max_rows)
        self._showing = threading.Lock()
        # Smoothed seconds of a batch, for Retry-After; 0 before the first.
        self._batch_s = 0.0
        self._thread = threading.Thread(
            target=self._drain, name="batching", daemon=True
        )

    def start(self) -> None:
        """Start the batching thread, once."""
        if not self._thread.ident:
            self._thread.start()

    def submit(self, job: Job) -> None:
        """Put the job's rows into the queue without waiting.

        Raises:
            QueueFull: no room now; says when to come again.
            TooLarge: more rows than the whole queue holds.
            Stopping: closed.
        """
        if job.rows > self._max_rows:
            raise TooLarge(
                f"{job.rows} rows in one request, and the queue holds {self._max_rows}"
            )
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            waiting = self._queue.qsize()
            raise QueueFull(
                f"the queue holds {waiting} of at most {self._max_rows} rows, and "
                f"{job.rows} more do not fit",
                self._retry_after_s(waiting),
            ) from None
        self._show_waiting()

    def close(self, timeout_s: float) -> None:
        """Stop in order; may be called twice.

        Lets no more jobs in, finishes those inside for up to `timeout_s` seconds,
        answers the rest with Stopping, then closes the engine. A batch that hangs
        in the engine can't be ended from outside: its jobs are answered, its
        thread is left behind.
        """
        self._queue.close()
        if self._thread.ident:
            self._thread.join(timeout_s)
        left = self._queue.clear()
        self._show_waiting()
        for job in left:
            job.fail(Stopping("the server is stopping"))
        if left:
            _log.warning("stopped with %d requests unanswered: 503", len(left))
        if not self._thread.is_alive():
            self._engine.close()

    def _drain(self) -> None:
        # A batch lives in a frame of its own, so that an idle thread holds no rows.
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        pieces = self._queue.take(self._release, self._max_batch_size)
        if pieces is None:
            return False
        self._show_waiting()
        if pieces:
            took_s = execute(
                self._engine, pieces, self._observer, self._allowed_batch_sizes
            )
            self._batch_s += 0.2 * (took_s - self._batch_s) if self._batch_s else took_s
        return True

    def _show_waiting(self) -> None:
        # Read and shown under one lock, so that no older figure follows a newer one.
        with self._showing:
            self._observer.rows_waiting(self._queue.qsize())

    def _retry_after_s(self, waiting: int) -> int:
        """Whole seconds until the rows that wait now will have run; at least 1."""
        return max(1, math.ceil(waiting / self._max_batch_size * self._batch_s))


class Unbatched:
    """One request, one inference, in the request's own thread."""

    def __init__(
        self,
        engine: Engine,
        max_rows: int,
        observer: Observer,
        allowed_batch_sizes: Sequence[int] = (),
    ) -> None:
        """Store the parts; `max_rows` bounds one request."""
        self._engine = engine
        self._max_rows = max_rows
        self._observer = observer
        self._allowed_batch_sizes = allowed_batch_sizes
        self._closed = False
        self._running = 0
        self._idle = threading.Condition()

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, job: Job) -> None:
        """Run the job at once; it is answered on return.

        It runs whole, or in batches of the largest allowed size where sizes are set.

        Raises:
            TooLarge: more rows than one request may have.
            Stopping: closed.
        """
        if job.rows > self._max_rows:
            raise TooLarge(f"{job.rows} rows in one request; at most {self._max_rows}")
        with self._idle:
            if self._closed:
                raise Stopping("the server is stopping")
            self._running += 1
        try:
            self._run(job)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def close(self, timeout_s: float) -> None:
        """Let no more jobs in, wait for those that run, and close the engine."""
        with self._idle:
            self._closed = True
            done = self._idle.wait_for(lambda: not self._running, timeout_s)
        if done:
            self._engine.close()

    def _run(self, job: Job) -> None:
        sizes = self._allowed_batch_sizes
        step = sizes[-1] if sizes else job.rows
        for start in range(0, job.rows, step):
            if is_dead(job, time.monotonic()):
                break
            piece = Piece(job, start, min(start + step, job.rows))
            execute(self._engine, [piece], self._observer, sizes)
