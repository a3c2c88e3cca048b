"""The bounded queue between the request threads and the one batching thread."""

import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING

from app.batching.fair_queue import FairQueue, Piece, rows_in
from app.batching.job import Job, Key
from app.batching.release import Release
from app.errors import QueueFull, Stopping

if TYPE_CHECKING or "gevent.monkey" not in sys.modules:
    from queue import Queue
else:
    # gevent patches queue.Queue with a class of its own, which has no `mutex` to hold
    # while a batch is gathered. The original uses whatever locks `threading` offers.
    Queue = sys.modules["gevent.monkey"].get_original("queue", "Queue")


class JobQueue(Queue[Job]):
    """A queue.Queue that is bounded in rows and emptied a batch at a time.

    Jobs whose rows cannot share a batch stand in lines of their own, which are served
    in turn, so that a row of another shape neither closes a batch early nor blocks
    those behind it. `follows` says whether the batch taken last was taken at once when
    the one before it had run.

    `take` replaces get(), which raises NotImplementedError, and `close` replaces
    shutdown(). Not used: full(), which is always False, task_done() and join().
    """

    def __init__(
        self,
        max_rows: int,
        release: Release,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Condition, float | None], object] = (
            threading.Condition.wait
        ),
        show: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Bound the queue to `max_rows`; tests replace `clock` and `wait`.

        `show` is called with the number of queued rows, in the order of the changes.
        """
        # Queue's own bound stays unlimited: it would refuse or block a put before
        # `_put` can drop other jobs.
        super().__init__(maxsize=0)
        self._max_rows = max_rows
        self._release = release
        self._clock = clock
        self._wait = wait
        self._show = show
        self._closed = False
        # The batch that runs now, or ran last.
        self._taken: list[Piece] = []
        # How many rows of it have not been reported to the rule as finished.
        self._runs = 0
        # Whether dead jobs have been looked for since that batch was taken.
        self._swept = False
        self.follows = False

    def _init(self, maxsize: int) -> None:
        # The line served last stands last.
        self._lines: dict[Key, FairQueue] = {}

    def _qsize(self) -> int:
        """Return the number of queued rows."""
        return sum([line.rows for line in self._lines.values()])

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
        queued = self._qsize()
        if queued + item.rows > self._max_rows:
            self._sweep()
            self._displace(item)
            queued = self._qsize()
        line = self._lines.get(item.key)
        if line is None:
            line = self._lines[item.key] = FairQueue()
        line.add(item)
        self._show(queued + item.rows)
        self._release.arrived(item.rows, self._clock())

    def _get(self) -> Job:
        raise NotImplementedError("take() removes jobs, a batch at a time")

    def rows_ahead(self, job: Job) -> int:
        """Return how many rows would run before the last row of `job`, if put now.

        Each other client counts for at most as many as the job's own client then has.
        """
        with self.mutex:
            waiting = self._waiting()
            share = waiting[job.client] + job.rows
            return sum([min(rows, share) for rows in waiting.values()])

    def take(self, max_batch_size: Callable[[Key], int]) -> list[Piece] | None:
        """Block until a batch is full or released and return it; None: closed, empty.

        Late and abandoned jobs are answered instead of taken, so that the list may
        be empty. Answer all jobs of a batch before taking the next one.
        """
        with self.mutex:
            self._finish()
            # After an empty batch none has run.
            self.follows = self.follows or bool(self._taken)
            self._taken = []
            self._swept = False
            while True:
                if not self._lines:
                    if self._closed:
                        return None
                    self._hold(None)
                    continue
                hold_s, key = self._most_urgent(max_batch_size)
                if hold_s <= 0 or self._closed:
                    self._taken = self._take_from(key, max_batch_size(key))
                    self._runs = rows_in(self._taken)
                    return self._taken
                self._hold(hold_s)

    def finished(self) -> None:
        """Report to the rule that the batch has run.

        Call it before the jobs are answered: clients may send their next requests
        before the next `take`.
        """
        with self.mutex:
            self._finish()

    def close(self) -> None:
        """Refuse new jobs; queued ones are still taken, without holding."""
        with self.mutex:
            self._closed = True
            self.not_empty.notify()

    def clear(self) -> list[Job]:
        """Empty the queue and return its unanswered jobs, running ones too."""
        with self.mutex:
            jobs = {piece.job for piece in self._taken}
            jobs.update(*self._lines.values())
            self._lines.clear()
            self._show(0)
            return [job for job in jobs if not job.is_answered()]

    def _hold(self, timeout_s: float | None) -> None:
        self.follows = False
        self._wait(self.not_empty, timeout_s)

    def _finish(self) -> None:
        if self._runs:
            self._release.finished(self._runs, self._clock())
            self._runs = 0

    def _most_urgent(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key]:
        """Return in how many seconds the first line may start, and its key.

        Among lines that may start now the one served longest ago goes first.
        """
        now = self._clock()

        def hold_s(key: Key, line: FairQueue) -> float:
            if line.rows >= max_batch_size(key):
                return 0.0
            return max(self._release.hold_s(line.rows, line.oldest_at(), now), 0.0)

        holds = [(hold_s(key, line), key) for key, line in self._lines.items()]
        return min(holds, key=itemgetter(0))

    def _take_from(self, key: Key, max_batch_size: int) -> list[Piece]:
        line = self._lines.pop(key)
        pieces = line.take(max_batch_size, self._clock())
        if line.rows:
            self._lines[key] = line
        self._show(self._qsize())
        return pieces

    def _sweep(self) -> None:
        """Drop dead jobs, once for each batch."""
        if self._swept:
            return
        self._swept = True
        for key, line in list(self._lines.items()):
            line.drop_dead(self._clock())
            if not line.rows:
                del self._lines[key]
        self._show(self._qsize())

    def _displace(self, item: Job) -> None:
        """Drop jobs of the clients with most rows, while `item`'s would have fewer.

        Raises:
            queue.Full: `item` would not fit all the same; no job is dropped.
        """
        excess = self._qsize() + item.rows - self._max_rows
        waiting = Counter(self._waiting())
        newest: dict[str, Iterator[tuple[Key, Job]]] = {}
        dropped = []
        while excess > 0:
            client, most = waiting.most_common(1)[0] if waiting else ("", 0)
            if waiting[item.client] + item.rows >= most:
                raise queue.Full
            found = next(newest.setdefault(client, self._newest(client)), None)
            if found is None:
                raise queue.Full
            dropped.append(found)
            waiting[client] -= found[1].rows
            excess -= found[1].rows
        for key, job in dropped:
            line = self._lines[key]
            line.drop_newest(job.client)
            if not line.rows:
                del self._lines[key]
            job.fail(QueueFull("others that have fewer rows waiting went before"))

    def _newest(self, client: str) -> Iterator[tuple[Key, Job]]:
        """Yield the jobs of a client that may be dropped, in the order to drop them."""
        for key, line in self._lines.items():
            for job in line.newest(client):
                yield key, job

    def _waiting(self) -> Counter[str]:
        """Return the number of queued rows by client."""
        if len(self._lines) == 1:
            (line,) = self._lines.values()
            return line.waiting
        waiting: Counter[str] = Counter()
        for line in self._lines.values():
            waiting.update(line.waiting)
        return waiting
