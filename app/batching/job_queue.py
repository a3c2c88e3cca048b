"""The bounded queue between the request threads and the batching thread."""

import heapq
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

    Jobs whose rows cannot share a batch are in different fair queues, so that a row of
    another shape neither closes a batch early nor blocks the rows behind it. Next comes
    the queue of the client, and of a client's the queue, that was served longest ago.

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
        on_change: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Bound the queue to `max_rows`; `clock` and `wait` may be in virtual time.

        `on_change` is called with the number of queued rows, in the order of changes.
        """
        # Queue's own bound would refuse or block a put before `_put` can drop others.
        super().__init__(maxsize=0)
        self._max_rows = max_rows
        self._release = release
        self._clock = clock
        self._wait = wait
        self._on_change = on_change
        self._closed = False
        self._batch: list[JobSlice] = []  # That runs now, or ran last.
        self.batch_rows = 0
        self.back_to_back = False
        # Whether the release rule does not know yet that the batch has run.
        self._is_running = False
        # Whether dead jobs were dropped since that batch was taken.
        self._dropped_dead = False

    def _init(self, maxsize: int) -> None:
        # In the order in which keys are served next.
        self._queues: dict[Key, FairQueue] = {}
        # Of all queues together.
        self._clients = ClientRows()
        self._turns = ClientTurns()

    def _qsize(self) -> int:
        """Return the number of queued rows."""
        return self._clients.total

    def _put(self, item: Job) -> None:
        """Add a job without blocking, even in put().

        A full queue drops dead jobs, and then the newest jobs of the client with most
        rows, as long as the new job's client has fewer: drop from the longest queue
        (McKenney, "Stochastic Fairness Queueing", 1990).

        Raises:
            queue.Full: the job's rows do not fit beside the queued ones.
            Stopping: the queue is closed.
        """
        if self._closed:
            raise Stopping("the server is stopping")
        if self._qsize() + item.rows > self._max_rows:
            self._drop_dead()
            self._evict_for(item)
        fair_queue = self._queues.get(item.key)
        if fair_queue is None:
            fair_queue = self._queues[item.key] = FairQueue(self._clients)
        fair_queue.add(item)
        self._on_change(self._qsize())
        self._release.arrived(item.rows, self._clock())

    def _get(self) -> Job:
        raise NotImplementedError("take() removes jobs, a batch at a time")

    def rows_ahead(self, job: Job) -> int:
        """Return how many rows would run before the last row of `job`, if put now.

        Each other client counts for at most as many as the job's own client then has.
        """
        with self.mutex:
            return self._clients.up_to(self._clients.of(job.client) + job.rows)

    def is_idle(self) -> bool:
        """Return whether no row is queued and `take` waits for the next batch."""
        with self.mutex:
            return not self._queues and not self._batch

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
            while self._queues or not self._closed:
                hold_s: float | None = None
                if self._queues:
                    hold_s, key, limit = self._next(max_batch_size)
                    if hold_s <= 0 or self._closed:
                        return self._take_from(key, limit)
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
            jobs = {each.job for each in self._batch}.union(*self._queues.values())
            self._queues.clear()
            self._clients = ClientRows()
            self._on_change(0)
            return [job for job in jobs if not job.is_answered()]

    def _report_finished(self) -> None:
        if self._is_running:
            self._release.finished(self.batch_rows, self._clock())
            self._is_running = False

    def _next(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key, int]:
        """Return how many seconds to hold the next batch, its key, and its limit."""
        now, held = self._clock(), []
        for key, jobs in self._turns.sorted(self._queues):
            limit, hold_s = max_batch_size(key), 0.0
            if jobs.rows < limit:
                hold_s = self._release.hold_s(jobs.rows, jobs.oldest_at(), now)
            if hold_s <= 0:
                return 0.0, key, limit
            held.append((hold_s, key, limit))
        return min(held, key=itemgetter(0))

    def _take_from(self, key: Key, limit: int) -> list[JobSlice]:
        fair_queue = self._queues.pop(key)
        self._batch = fair_queue.take(limit, self._clock())
        self._turns.note(self._batch)
        if fair_queue.rows:
            self._queues[key] = fair_queue
        self._on_change(self._qsize())
        self.batch_rows = rows_in(self._batch)
        self._is_running = bool(self._batch)
        return self._batch

    def _drop_dead(self) -> None:
        """Drop dead jobs, once for each batch."""
        if self._dropped_dead:
            return
        self._dropped_dead = True
        for key, jobs in list(self._queues.items()):
            jobs.drop_dead(self._clock())
            if not jobs.rows:
                del self._queues[key]
        self._on_change(self._qsize())

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
