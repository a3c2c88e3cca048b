"""The bounded queue between the request threads and the one batching thread."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from app.errors import QueueFull, Stopping
from app.serving.job import Job, Key
from app.serving.line import Line, Piece, rows_in
from app.serving.release import Release


class JobQueue:
    """What queue.Queue is, but it counts rows and is emptied by whole batches.

    It is none, because gevent puts a Queue of its own in that place, without a lock
    to hold while a batch is gathered. Jobs whose rows can't share a batch stand in
    lines of their own, which are served in turn, so that a row of another shape
    neither closes a batch early nor blocks those behind it. `follows` says whether the
    batch taken last was taken at once when the one before it had run.
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
        """Bound the queue to `max_rows`; a test drives `clock` and `wait` by hand.

        `show` is told how many rows wait, in the order in which that changes.
        """
        self.maxsize = max_rows
        self._changing = threading.Lock()
        self._filled = threading.Condition(self._changing)
        # The line served last stands last.
        self._lines: dict[Key, Line] = {}
        self._release = release
        self._clock = clock
        self._wait = wait
        self._show = show
        self._closed = False
        # The batch that runs now, or ran last.
        self._taken: list[Piece] = []
        # How many rows of it the rule has not heard of.
        self._runs = 0
        # Whether dead jobs have been looked for since that batch was taken.
        self._swept = False
        self.follows = False

    def qsize(self) -> int:
        """How many rows wait."""
        with self._changing:
            return self._rows()

    def put_nowait(self, item: Job) -> None:
        """Let a job in, or say at once that it can't.

        In a full queue dead jobs make room, and then the newest ones of the client
        that has most rows there, as long as the newcomer's client has fewer: drop
        from the longest queue (McKenney, "Stochastic Fairness Queueing", 1990).

        Raises:
            queue.Full: its rows do not fit beside those that wait.
            Stopping: the queue is closed.
        """
        with self._changing:
            if self._closed:
                raise Stopping("the server is stopping")
            if self._lacks(item) > 0 and self._sweep():
                self._show(self._rows())
            if self._lacks(item) > 0:
                self._displace(item)
            line = self._lines.get(item.key)
            if line is None:
                line = self._lines[item.key] = Line()
            line.add(item)
            self._show(self._rows())
            self._release.arrived(item.rows, self._clock())
            self._filled.notify()

    def rows_ahead(self, job: Job) -> int:
        """How many rows run before the last one of a job that comes now.

        Of each other client as many as the job's own client then has waiting.
        """
        with self._changing:
            waiting = self._waiting()
            share = waiting[job.client] + job.rows
            return sum([min(rows, share) for rows in waiting.values()])

    def take(self, max_batch_size: Callable[[Key], int]) -> list[Piece] | None:
        """Block until a batch is full or the rule releases it; None: closed and empty.

        Late and abandoned jobs are answered instead of taken, so that the list may
        be empty. Who takes again has answered what was taken before.
        """
        with self._changing:
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
        """What was taken has run, and nobody has been told.

        Who does not call it before the answers may see their clients come back before
        `take` does.
        """
        with self._changing:
            self._finish()

    def close(self) -> None:
        """Let no more jobs in; those inside are still taken, without holding."""
        with self._changing:
            self._closed = True
            self._filled.notify()

    def clear(self) -> list[Job]:
        """Empty the queue; all jobs that nobody has answered, running ones too."""
        with self._changing:
            jobs = {piece.job for piece in self._taken}
            jobs.update(*self._lines.values())
            self._lines.clear()
            self._show(0)
            return [job for job in jobs if not job.is_answered()]

    def _hold(self, timeout_s: float | None) -> None:
        self.follows = False
        self._wait(self._filled, timeout_s)

    def _finish(self) -> None:
        if self._runs:
            self._release.finished(self._runs, self._clock())
            self._runs = 0

    def _most_urgent(self, max_batch_size: Callable[[Key], int]) -> tuple[float, Key]:
        """The line that may start first, and in how many seconds.

        Among lines that may start now the one served longest ago goes first.
        """
        now = self._clock()

        def hold_s(key: Key) -> float:
            line = self._lines[key]
            rows = line.rows
            if rows >= max_batch_size(key):
                return 0.0
            return max(self._release.hold_s(rows, line.oldest_at(), now), 0.0)

        holds = {key: hold_s(key) for key in self._lines}
        key = min(holds, key=holds.__getitem__)
        return holds[key], key

    def _take_from(self, key: Key, max_batch_size: int) -> list[Piece]:
        line = self._lines.pop(key)
        pieces = line.take(max_batch_size, self._clock())
        if line.rows:
            self._lines[key] = line
        self._show(self._rows())
        return pieces

    def _sweep(self) -> bool:
        """Drop dead jobs, once for each batch; say whether that was done."""
        if self._swept:
            return False
        self._swept = True
        for key, line in list(self._lines.items()):
            line.drop_dead(self._clock())
            if not line.rows:
                del self._lines[key]
        return True

    def _lacks(self, item: Job) -> int:
        """How many rows too many there would be."""
        return self._rows() + item.rows - self.maxsize

    def _displace(self, item: Job) -> None:
        """Drop jobs of the clients with most rows, while `item`'s would have fewer.

        Raises:
            queue.Full: it would not fit all the same; nobody is dropped.
        """
        lacks, waiting = self._lacks(item), Counter(self._waiting())
        newest: dict[str, Iterator[tuple[Key, Job]]] = {}
        dropped = []
        while lacks > 0:
            client, most = waiting.most_common(1)[0] if waiting else ("", 0)
            if waiting[item.client] + item.rows >= most:
                raise queue.Full
            found = next(newest.setdefault(client, self._newest(client)), None)
            if found is None:
                raise queue.Full
            dropped.append(found)
            waiting[client] -= found[1].rows
            lacks -= found[1].rows
        for key, job in dropped:
            line = self._lines[key]
            line.drop_newest(job.client)
            if not line.rows:
                del self._lines[key]
            job.fail(QueueFull("others that have fewer rows waiting went before"))

    def _newest(self, client: str) -> Iterator[tuple[Key, Job]]:
        """The jobs of a client that may be dropped, in the order to drop them."""
        for key, line in self._lines.items():
            for job in line.newest(client):
                yield key, job

    def _rows(self) -> int:
        return sum([line.rows for line in self._lines.values()])

    def _waiting(self) -> Counter[str]:
        """Rows that wait, by client."""
        if len(self._lines) == 1:
            (line,) = self._lines.values()
            return line.waiting
        waiting: Counter[str] = Counter()
        for line in self._lines.values():
            waiting.update(line.waiting)
        return waiting
