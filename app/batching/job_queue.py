"""The bounded queue between the request threads and the batching thread."""

import math
import queue
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from app.batching.fair_queue import (
    JobSlice,
    Turns,
    job_slice,
    max_min_shares,
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

    A job that arrives is appended to a list, and a batch usually takes the whole list.
    Where more rows wait than a batch takes, it is divided fairly among the clients.
    Jobs of different keys never share a batch. Next comes the key of the client, and
    of a client's the key, that was served longest ago: many keys get a client no more
    than its share.

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
        # In order of arrival. Of some the first rows are taken.
        self._jobs: list[Job] = []
        # Arrivals that the release rule does not know yet; they may have left since.
        self._news: list[tuple[int, float]] = []
        self._rows = 0
        self._client_rows: dict[str, int] = {}
        # False: there may be several.
        self._has_one_key = True
        self._turns = Turns()

    def _qsize(self) -> int:
        """Return the number of queued rows."""
        return self._rows

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
            rows = self._rows + item.rows
            if rows > self._max_rows:
                self._make_room_for(item)
                rows = self._rows + item.rows
            if self._jobs and item.key != self._jobs[0].key:
                self._has_one_key = False
                # It may fill a batch of its own key.
                self._wake_at = 1
            self._jobs.append(item)
            self._news.append((item.rows, item.enqueued_at))
            self._rows = rows
            client_rows = self._client_rows
            client_rows[item.client] = client_rows.get(item.client, 0) + item.rows
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
            share = self._client_rows.get(job.client, 0) + job.rows
            return sum([min(rows, share) for rows in self._client_rows.values()])

    def is_idle(self) -> bool:
        """Return whether no row is queued and `take` waits for the next batch."""
        with self.mutex:
            return not (self._jobs or self._batch)

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
            while self._jobs or not self._closed:
                hold_s: float | None = None
                self._wake_at = 1
                if self._jobs:
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
            jobs = {job for job, _, _ in self._batch}.union(self._jobs)
            self._init(0)
            self._on_change(0)
            return [job for job in jobs if not job.is_answered()]

    def _report_finished(self) -> None:
        if self._is_running:
            self._report_arrivals()
            self._release.finished(self.batch_rows, self._clock())
            self._is_running = False

    def _report_arrivals(self) -> None:
        news, self._news = self._news, []
        self._release.arrived(news)

    def _next(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key, int]:
        """Return how many seconds to hold the next batch, its key, and its limit."""
        self._report_arrivals()
        now, held = self._clock(), []
        for key, jobs in self._by_key():
            limit, hold_s = max_batch_size(key), 0.0
            rows = self._rows
            if not self._has_one_key:
                rows = sum([job.rows - job.taken for job in jobs])
            if rows < limit:
                oldest_at = min([job.enqueued_at for job in jobs])
                hold_s = self._release.hold_s(rows, oldest_at, now)
            if hold_s <= 0:
                return 0.0, key, limit
            held.append((hold_s, key, limit))
        return min(held, key=itemgetter(0))

    def _by_key(self) -> Iterable[tuple[Key, list[Job]]]:
        """Return the jobs of each key, the next one first."""
        if self._has_one_key:
            return [(self._jobs[0].key, self._jobs)]
        by_key: dict[Key, list[Job]] = {}
        for job in self._jobs:
            by_key.setdefault(job.key, []).append(job)
        self._has_one_key = len(by_key) == 1
        last = self._turns.last
        # A key that is new comes behind those that wait.
        self._turns.note([key for key in by_key if not last(key)])
        return sorted(
            by_key.items(),
            key=lambda each: (
                min([last(job.client) for job in each[1]]),
                last(each[0]),
            ),
        )

    def _rows_that_end_the_hold(self, limit: int) -> float:
        """Return with how many queued rows to look at a held batch again."""
        if not self._has_one_key:
            # Any row may fill a batch of its key.
            return self._rows + 1
        return min(self._rows + self._release.rows_to_await(), limit)

    def _take_from(self, key: Key, limit: int) -> list[JobSlice]:
        """Remove and return a batch of a key's rows."""
        self._drop_dead()
        if self._has_one_key and self._rows <= limit:
            batch = [job_slice((job, job.taken, job.rows)) for job in self._jobs]
            for job in self._jobs:
                job.taken = job.rows
            self._jobs = []
            self._rows = 0
            self._client_rows = {}
        else:
            batch = self._take_shares(key, limit)
        self._batch = batch
        self._turns.note(dict.fromkeys([job.client for job, _, _ in batch]))
        self._turns.note([key])
        self._on_change(self._rows)
        self.batch_rows = rows_in(batch)
        self._is_running = bool(batch)
        return batch

    def _take_shares(self, key: Key, limit: int) -> list[JobSlice]:
        """Remove and return a batch that is divided fairly among the clients."""
        jobs, rows = self._jobs, self._client_rows
        if not self._has_one_key:
            jobs = [job for job in jobs if job.key == key]
            rows = defaultdict(int)
            for job in jobs:
                rows[job.client] += job.rows - job.taken
        last = self._turns.last
        shares = max_min_shares(
            {each: rows[each] for each in sorted(rows, key=last)}, limit
        )
        batch = []
        for job in jobs:
            share = min(shares[job.client], job.rows - job.taken)
            if share:
                shares[job.client] -= share
                limit -= share
                batch.append(JobSlice(job, job.taken, job.taken + share))
                self._take_rows(job, share)
                if not limit:
                    break
        self._forget_taken()
        # As `note` counts the turns in this order.
        batch.sort(key=lambda each: last(each.job.client))
        return batch

    def _take_rows(self, job: Job, rows: int) -> None:
        """Count some of a job's rows as taken; `_forget_taken` must follow."""
        job.taken += rows
        self._rows -= rows
        self._client_rows[job.client] -= rows
        if not self._client_rows[job.client]:
            del self._client_rows[job.client]

    def _forget_taken(self) -> None:
        """Remove the jobs whose rows are all taken."""
        self._jobs = [job for job in self._jobs if job.taken < job.rows]

    def _drop_dead(self) -> None:
        now = self._clock()
        dead = [
            job
            for job in self._jobs
            # Nearly all are alive, which takes no call.
            if (job.deadline <= now or job.is_abandoned or job.claim.locked())
            and job.drop_if_dead(now)
        ]
        if dead:
            for job in dead:
                self._take_rows(job, job.rows - job.taken)
            self._forget_taken()

    def _make_room_for(self, item: Job) -> None:
        """Drop dead jobs, once for each batch, and jobs of the clients with most rows.

        Raises:
            queue.Full: `item` would not fit all the same; no living job is dropped.
        """
        if not self._dropped_dead:
            self._dropped_dead = True
            self._drop_dead()
            self._on_change(self._rows)
        excess = self._rows + item.rows - self._max_rows
        fewest = self._client_rows.get(item.client, 0) + item.rows
        rows = {
            client: count
            for client, count in self._client_rows.items()
            if count > fewest
        }
        newest: dict[str, Iterator[Job]] = {}
        evicted: list[Job] = []
        while excess > 0:
            client = max(rows, key=rows.__getitem__, default="")
            if rows.get(client, 0) <= fewest:
                raise queue.Full
            job = next(newest.setdefault(client, self._newest(client)), None)
            if job is None:
                raise queue.Full
            evicted.append(job)
            rows[client] -= job.rows
            excess -= job.rows
        for job in evicted:
            self._take_rows(job, job.rows)
            job.fail(QueueFull("others that have fewer rows waiting went before"))
        self._forget_taken()

    def _newest(self, client: str) -> Iterator[Job]:
        """Yield a client's jobs of which no row has run, the newest first."""
        for job in reversed(self._jobs):
            if job.client == client and not job.taken:
                yield job
