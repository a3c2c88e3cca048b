"""The bounded queue between the request threads and the batching thread."""

import heapq
import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from app.batching.fair_queue import (
    ClientRows,
    ClientTurns,
    FairQueue,
    JobSlice,
    job_slice,
    rows_in,
)
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
        # Jobs that are in no fair queue yet, their rows, whether all have one key, and
        # how many of them the release rule knows.
        self._arrived: list[Job] = []
        self._arrived_rows = 0
        self._arrived_alike = True
        self._arrived_told = 0
        # In the order in which keys are served next.
        self._queues: dict[Key, FairQueue] = {}
        # Of all fair queues together.
        self._clients = ClientRows()
        self._turns = ClientTurns()

    def _qsize(self) -> int:
        """Return the number of queued rows."""
        return self._clients.total + self._arrived_rows

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
            rows = self._clients.total + self._arrived_rows + item.rows
            if self._closed:
                raise Stopping("the server is stopping")
            if rows > self._max_rows:
                self._make_place_for(item)
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
            return self._clients.up_to(self._clients.of(job.client) + job.rows)

    def is_idle(self) -> bool:
        """Return whether no row is queued and `take` waits for the next batch."""
        with self.mutex:
            return not (self._arrived or self._queues or self._batch)

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
            while self._arrived or self._queues or not self._closed:
                hold_s: float | None = None
                wake_at: float = 1
                if self._arrived or self._queues:
                    hold_s, key, limit = self._next(max_batch_size)
                    if hold_s <= 0 or self._closed:
                        return self._take_from(key, limit)
                    wake_at = self._rows_to_await(limit)
                self.back_to_back = False
                self._wake_at = wake_at
                self._wait(self.not_empty, hold_s)
                self._wake_at = math.inf
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
            running = {each.job for each in self._batch}
            jobs = running.union(self._arrived, *self._queues.values())
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
        if new:
            self._arrived_told = len(self._arrived)
            self._release.arrived([(job.rows, job.enqueued_at) for job in new])

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
            fair_queue = self._queues.get(job.key)
            if fair_queue is None:
                fair_queue = self._queues[job.key] = FairQueue(self._clients)
            fair_queue.add(job)

    def _next(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key, int]:
        """Return how many seconds to hold the next batch, its key, and its limit.

        Its jobs are all arrivals if no fair queue has any afterwards.
        """
        self._report_arrivals()
        now, arrived = self._clock(), self._arrived
        if not self._queues and self._arrived_alike:
            key, rows = arrived[0].key, self._arrived_rows
            limit, hold_s = max_batch_size(key), 0.0
            if rows < limit:
                oldest_at = min([job.enqueued_at for job in arrived])
                hold_s = self._release.hold_s(rows, oldest_at, now)
            if rows <= limit:
                return hold_s, key, limit
        self._sort()
        held = []
        for key, jobs in self._turns.sorted(self._queues):
            limit, hold_s = max_batch_size(key), 0.0
            if jobs.rows < limit:
                hold_s = self._release.hold_s(jobs.rows, jobs.oldest_at(), now)
            if hold_s <= 0:
                return 0.0, key, limit
            held.append((hold_s, key, limit))
        return min(held, key=itemgetter(0))

    def _rows_to_await(self, limit: int) -> float:
        """Return with how many queued rows to look again before a hold is over."""
        rows = self._qsize()
        if self._queues:
            # Any row may fill a batch of its key.
            return rows + 1
        return min(rows + self._release.rows_to_await(), limit)

    def _take_from(self, key: Key, limit: int) -> list[JobSlice]:
        now = self._clock()
        if self._queues:
            fair_queue = self._queues.pop(key)
            batch = fair_queue.take(limit, now)
            if fair_queue.rows:
                self._queues[key] = fair_queue
        else:
            batch = []
            for job in self._take_arrivals():
                may_be_dead = (
                    job.deadline <= now or job.is_abandoned or job.claim.locked()
                )
                if may_be_dead and job.drop_if_dead(now):
                    continue
                job.taken = job.rows
                batch.append(job_slice((job, 0, job.rows)))
        self._batch = batch
        self._turns.note(batch)
        self._on_change(self._qsize())
        self.batch_rows = rows_in(batch)
        self._is_running = bool(batch)
        return batch

    def _make_place_for(self, item: Job) -> None:
        """Drop dead jobs, once for each batch, and jobs of the clients with most rows.

        Raises:
            queue.Full: `item` would not fit all the same.
        """
        self._sort()
        if not self._dropped_dead:
            self._dropped_dead = True
            for key, jobs in list(self._queues.items()):
                jobs.drop_dead(self._clock())
                if not jobs.rows:
                    del self._queues[key]
            self._on_change(self._qsize())
        self._evict_for(item)

    def _evict_for(self, item: Job) -> None:
        """Drop jobs of the clients with most rows, while `item`'s would have fewer.

        Raises:
            queue.Full: `item` would not fit all the same; no job is dropped.
        """
        excess = self._qsize() + item.rows - self._max_rows
        fewest = self._clients.of(item.client) + item.rows
        # Nearly all refusals end here, without a look at each client.
        if excess > 0 and fewest >= self._clients.most():
            raise queue.Full
        clients = self._clients.most_first() if excess > 0 else []
        newest: dict[str, Iterator[tuple[Key, Job]]] = {}
        evicted = []
        while excess > 0:
            minus_most, number, client = clients[0]
            if fewest >= -minus_most:
                raise queue.Full
            found = next(
                newest.setdefault(client, FairQueue.newest_of(self._queues, client)),
                None,
            )
            if found is None:
                raise queue.Full
            evicted.append(found)
            rows = found[1].rows
            heapq.heapreplace(clients, (minus_most + rows, number, client))
            excess -= rows
        for key, job in evicted:
            jobs = self._queues[key]
            jobs.drop_newest(job.client)
            if not jobs.rows:
                del self._queues[key]
            job.fail(QueueFull("others that have fewer rows waiting went before"))
