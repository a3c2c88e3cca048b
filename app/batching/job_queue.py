"""The bounded queue between the request threads and the batching thread."""

import math
import queue
import sys
import threading
import time
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from app.batching.fair_queue import FairQueues, JobSlice, job_slice, rows_in
from app.batching.job import Job, Key
from app.batching.release import Release
from app.errors import QueueFull, Stopping

if TYPE_CHECKING or "gevent.monkey" not in sys.modules:
    from queue import Queue
else:
    # gevent patches queue.Queue with a class of its own, which has no `mutex` to hold
    # while a batch is gathered. The original uses whatever locks `threading` offers.
    Queue = sys.modules["gevent.monkey"].get_original("queue", "Queue")

# Waits for a condition, at most for so many seconds; None: without a limit.
Wait = Callable[[threading.Condition, float | None], object]


class JobQueue(Queue[Job]):
    """A queue.Queue that is bounded in rows and emptied a batch at a time.

    A job that arrives is appended to a list, and a batch takes the whole list. Only
    where more rows wait than a batch takes, or jobs of several keys, are they sorted
    into fair queues, one for each key, so that a row of another shape neither closes a
    batch early nor blocks the rows behind it. Next comes the queue of the client, and
    of a client's the queue, that was served longest ago.

    `batch_rows` is the number of rows of the batch taken last, and `back_to_back` says
    whether `take` took it without waiting, so that it follows the batch before it.

    `take` replaces get(), which raises NotImplementedError, and `close` replaces
    shutdown(). Not used: full(), which is always False, task_done() and join().
    """

    def __init__(
        self,
        max_rows: int,
        release: Release,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = threading.Condition.wait,
        on_change: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Bound the queue to `max_rows`; `clock` and `wait` may be in virtual time.

        `on_change` is called with the number of queued rows, in the order of changes.
        """
        super().__init__(maxsize=0)
        self._max_rows = max_rows
        self._release = release
        self._clock = clock
        self._wait = wait
        self._on_change = on_change
        self._closed = False
        # An arrival that makes so many queued rows wakes the batching thread; inf while
        # that does not wait.
        self._wake_at = math.inf
        self._batch: list[JobSlice] = []  # That runs now, or ran last.
        self.batch_rows = 0
        self.back_to_back = False
        # Whether the release rule does not know yet that the batch has run.
        self._is_running = False
        # Whether dead jobs were dropped since that batch was taken.
        self._dropped_dead = False

    def _init(self, maxsize: int) -> None:
        # Jobs in no fair queue yet, their rows, and whether all have one key.
        self._arrived: list[Job] = []
        self._arrived_rows = 0
        self._arrived_alike = True
        # How many of them the release rule knows.
        self._arrived_told = 0
        self._sorted = FairQueues()

    def _qsize(self) -> int:
        """Return the number of queued rows."""
        return self._arrived_rows + self._sorted.clients.total

    def put(self, item: Job, block: bool = True, timeout: float | None = None) -> None:
        """Add a job without blocking, whatever `block` says.

        A full queue drops dead jobs, and then the newest jobs of the client with most
        rows, as long as the new job's client has fewer: drop from the longest queue
        (McKenney, "Stochastic Fairness Queueing", 1990).

        Raises:
            queue.Full: the job's rows do not fit beside the queued ones.
            Stopping: the queue is closed.
        """
        del block, timeout
        with self.mutex:
            if self._closed:
                raise Stopping("the server is stopping")
            rows = self._arrived_rows + self._sorted.clients.total + item.rows
            if rows > self._max_rows:
                self._make_room_for(item)
                rows = self._qsize() + item.rows
            arrived = self._arrived
            if arrived and self._arrived_alike and item.key != arrived[0].key:
                self._arrived_alike = False
                # It may fill a batch of its own key.
                self._wake_at = 1
            arrived.append(item)
            self._arrived_rows += item.rows
            self._on_change(rows)
            if rows >= self._wake_at:
                self._wake_at = math.inf
                self.not_empty.notify()

    def _get(self) -> Job:
        raise NotImplementedError("take() removes jobs, a batch at a time")

    def rows_ahead(self, job: Job) -> int:
        """Return how many rows would run before the last row of `job`, if put now.

        Each other client counts for at most as many as the job's own client then has.
        """
        with self.mutex:
            self._sort()
            clients = self._sorted.clients
            return clients.up_to(clients.of(job.client) + job.rows)

    def is_idle(self) -> bool:
        """Return whether no row is queued and `take` waits for the next batch."""
        with self.mutex:
            return not (self._arrived or self._sorted or self._batch)

    def take(self, max_batch_size: Callable[[Key], int]) -> list[JobSlice] | None:
        """Block until a batch is full or released and return it; None: closed, empty.

        Late and abandoned jobs are answered instead of taken, so that the list may
        be empty. Answer all jobs of a batch before taking the next one.
        """
        with self.mutex:
            self._report_finished()
            # An empty batch did not run: the next one still follows the one before.
            self.back_to_back = self.back_to_back or bool(self._batch)
            self._batch = []
            self._dropped_dead = False
            while self._arrived or self._sorted or not self._closed:
                hold_s: float | None = None
                self._wake_at = 1
                if self._arrived or self._sorted:
                    hold_s, key, limit = self._next(max_batch_size)
                    if hold_s <= 0 or self._closed:
                        self._wake_at = math.inf
                        return self._take_from(key, limit)
                    self._wake_at = self._rows_that_end_the_hold(limit)
                self.back_to_back = False
                self._wait(self.not_empty, hold_s)
            return None

    def finished(self) -> None:
        """Report to the release rule that the batch has run.

        Call it before the jobs are answered: clients may send their next requests
        before the next `take`.
        """
        with self.mutex:
            self._report_finished()

    def close(self) -> None:
        """Refuse new jobs; queued ones are still taken, without holding."""
        with self.mutex:
            self._closed = True
            self.not_empty.notify()

    def clear(self) -> list[Job]:
        """Empty the queue and return its unanswered jobs, running ones too."""
        with self.mutex:
            running = {job for job, _, _ in self._batch}
            jobs = running.union(self._arrived, self._sorted)
            self._init(0)
            self._on_change(0)
            return [job for job in jobs if not job.is_answered()]

    def _report_finished(self) -> None:
        if self._is_running:
            self._report_arrivals()
            self._release.finished(self.batch_rows, self._clock())
            self._is_running = False

    def _report_arrivals(self) -> None:
        new = self._arrived[self._arrived_told :]
        self._release.arrived([(job.rows, job.enqueued_at) for job in new])
        self._arrived_told = len(self._arrived)

    def _take_arrivals(self) -> list[Job]:
        """Remove and return all jobs that are in no fair queue."""
        self._report_arrivals()
        arrived = self._arrived
        self._arrived = []
        self._arrived_rows = self._arrived_told = 0
        self._arrived_alike = True
        return arrived

    def _sort(self) -> None:
        """Move all arrivals into the fair queues."""
        for job in self._take_arrivals():
            self._sorted.add(job)

    def _next(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key, int]:
        """Return how many seconds to hold the next batch, its key, and its limit.

        It has all arrivals, unless they were sorted.
        """
        self._report_arrivals()
        if self._arrived_alike and not self._sorted:
            key, rows = self._arrived[0].key, self._arrived_rows
            limit = max_batch_size(key)
            if rows <= limit:
                oldest_at = min([job.enqueued_at for job in self._arrived])
                return self._hold_s(rows, limit, oldest_at), key, limit
        self._sort()
        held = []
        for key, jobs in self._sorted.in_turn():
            limit = max_batch_size(key)
            hold_s = self._hold_s(jobs.rows, limit, jobs.oldest_at())
            if hold_s <= 0:
                return 0.0, key, limit
            held.append((hold_s, key, limit))
        return min(held, key=itemgetter(0))

    def _hold_s(self, rows: int, limit: int, oldest_at: float) -> float:
        if rows >= limit:
            return 0.0
        return self._release.hold_s(rows, oldest_at, self._clock())

    def _rows_that_end_the_hold(self, limit: int) -> float:
        """Return with how many queued rows to look at a held batch again."""
        rows = self._qsize()
        if self._sorted:
            # Any row may fill a batch of its key.
            return rows + 1
        return min(rows + self._release.rows_to_await(), limit)

    def _take_from(self, key: Key, limit: int) -> list[JobSlice]:
        now = self._clock()
        if self._sorted:
            batch = self._sorted.take(key, limit, now)
        else:
            batch = []
            for job in self._take_arrivals():
                is_alive = job.deadline > now and not job.is_abandoned
                if (is_alive and not job.claim.locked()) or not job.drop_if_dead(now):
                    job.taken = job.rows
                    batch.append(job_slice((job, 0, job.rows)))
        self._batch = batch
        self._sorted.note(batch)
        self._on_change(self._qsize())
        self.batch_rows = rows_in(batch)
        self._is_running = bool(batch)
        return batch

    def _make_room_for(self, item: Job) -> None:
        """Drop dead jobs, once for each batch, and jobs of the clients with most rows.

        Raises:
            queue.Full: `item` would not fit all the same.
        """
        self._sort()
        if not self._dropped_dead:
            self._dropped_dead = True
            self._sorted.drop_dead(self._clock())
            self._on_change(self._qsize())
        excess = self._qsize() + item.rows - self._max_rows
        fewest = self._sorted.clients.of(item.client) + item.rows
        evicted = self._sorted.evict(excess, fewest)
        if evicted is None:
            raise queue.Full
        for job in evicted:
            job.fail(QueueFull("others that have fewer rows waiting went before"))
