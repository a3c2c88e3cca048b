"""The bounded queue between the request threads and the one batching thread."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from app.errors import Abandoned, Late, Stopping
from app.serving.job import Job, Key
from app.serving.release import Release


class Piece(NamedTuple):
    """Rows `start` to `stop` of a job, in one batch."""

    job: Job
    start: int
    stop: int


@dataclass
class _Line:
    """The jobs of one key in order of arrival, and the rows they still want run."""

    jobs: deque[Job]
    rows: int = 0


class JobQueue(queue.Queue[Job]):
    """A queue.Queue that counts rows and is emptied by whole batches.

    Jobs whose rows can't share a batch stand in lines of their own, so that a row
    of another shape neither closes a batch early nor blocks those behind it.
    """

    def __init__(
        self,
        max_rows: int,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Condition, float | None], object] = (
            threading.Condition.wait
        ),
    ) -> None:
        """Bound the queue to `max_rows`; a test drives `clock` and `wait` by hand."""
        super().__init__(maxsize=max_rows)
        self._clock = clock
        self._wait = wait
        self._closed = False
        # The batch that runs now, or ran last.
        self._taken: list[Piece] = []

    def _init(self, maxsize: int) -> None:
        del maxsize
        self._lines: dict[Key, _Line] = {}

    def _qsize(self) -> int:
        return sum(line.rows for line in self._lines.values())

    def _put(self, item: Job) -> None:
        line = self._lines.setdefault(item.key, _Line(deque()))
        line.jobs.append(item)
        line.rows += item.rows

    def put_nowait(self, item: Job) -> None:
        """Let a job in, or say at once that it can't.

        Raises:
            queue.Full: its rows do not fit beside those that wait.
            Stopping: the queue is closed.
        """
        with self.mutex:
            if self._closed:
                raise Stopping("the server is stopping")
            if self._qsize() + item.rows > self.maxsize:
                raise queue.Full
            self._put(item)
            self.not_empty.notify()

    def take(self, release: Release, max_batch_size: int) -> list[Piece] | None:
        """Block until the rule releases a batch; None when closed and empty.

        Late and abandoned jobs are answered instead of taken, so that the list may
        be empty. Who takes again has answered what was taken before.
        """
        with self.mutex:
            self._taken = []
            while True:
                if not self._lines:
                    if self._closed:
                        return None
                    self._wait(self.not_empty, None)
                    continue
                hold_s, key = self._most_urgent(release)
                if hold_s <= 0 or self._closed:
                    self._taken = self._take_from(key, max_batch_size)
                    return self._taken
                self._wait(self.not_empty, hold_s)

    def close(self) -> None:
        """Let no more jobs in; those inside are still taken, without holding."""
        with self.mutex:
            self._closed = True
            self.not_empty.notify()

    def clear(self) -> list[Job]:
        """Empty the queue; all jobs that nobody has answered, running ones too."""
        with self.mutex:
            jobs = {piece.job for piece in self._taken}
            jobs.update(*(line.jobs for line in self._lines.values()))
            self._lines.clear()
            return [job for job in jobs if not job.is_answered()]

    def _most_urgent(self, release: Release) -> tuple[float, Key]:
        """The line that may start first, and in how many seconds.

        Among lines that may start now the one with the oldest head goes first.
        """
        now = self._clock()
        holds = {
            key: max(release.hold_s(line.rows, line.jobs[0].enqueued_at, now), 0.0)
            for key, line in self._lines.items()
        }
        key = min(
            holds, key=lambda key: (holds[key], self._lines[key].jobs[0].enqueued_at)
        )
        return holds[key], key

    def _take_from(self, key: Key, max_batch_size: int) -> list[Piece]:
        line = self._lines[key]
        pieces: list[Piece] = []
        room = max_batch_size
        while line.jobs and room:
            job = line.jobs[0]
            left = job.rows - job.taken
            if is_dead(job, self._clock()):
                line.rows -= left
                line.jobs.popleft()
                continue
            rows = min(left, room)
            pieces.append(Piece(job, job.taken, job.taken + rows))
            job.taken += rows
            line.rows -= rows
            room -= rows
            if rows == left:
                line.jobs.popleft()
        if not line.jobs:
            del self._lines[key]
        return pieces


def is_dead(job: Job, now: float) -> bool:
    """Say whether a job's rows are not to be run; one that nobody wants is answered."""
    if job.is_answered():
        return True
    if job.deadline <= now:
        job.fail(Late("the request's deadline passed before its rows were run"))
    elif job.is_gone():
        job.fail(Abandoned("the client closed the connection"))
    else:
        return False
    return True
