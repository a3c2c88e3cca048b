"""Jobs whose rows may share a batch, each client's in order, the clients in turn."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from app.batching.job import Job


class Piece(NamedTuple):
    """Rows `start` to `stop` of a job, in one batch."""

    job: Job
    start: int
    stop: int


def rows_in(pieces: Iterable[Piece]) -> int:
    """How many rows the pieces have together."""
    return sum([stop - start for _, start, stop in pieces])


def cut(
    parts: Sequence[Sequence[Piece]], limit: Callable[[], int]
) -> Iterator[list[Piece]]:
    """The parts in groups of at most so many rows; a piece may be cut as well."""
    for part in parts:
        waiting = list(reversed(part))
        while waiting:
            group: list[Piece] = []
            room = limit()
            while waiting and room:
                job, start, stop = waiting.pop()
                middle = min(stop, start + room)
                group.append(Piece(job, start, middle))
                room -= middle - start
                if middle < stop:
                    waiting.append(Piece(job, middle, stop))
            yield group


class FairQueue:
    """The jobs of one key.

    Max-min fair sharing: a batch is divided evenly among the clients that wait, and
    what one does not need falls to the others. The one served last stands last.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        # Rows that wait: all, and by client.
        self.rows = 0
        self.waiting: Counter[str] = Counter()
        self._jobs: dict[str, deque[Job]] = {}

    def __iter__(self) -> Iterator[Job]:
        """All jobs, client by client."""
        for jobs in self._jobs.values():
            yield from jobs

    def add(self, job: Job) -> None:
        """Let a job in behind the others of its client."""
        self._jobs.setdefault(job.client, deque()).append(job)
        self.waiting[job.client] += job.rows
        self.rows += job.rows

    def oldest_at(self) -> float:
        """When the job that waits longest arrived."""
        return min(jobs[0].enqueued_at for jobs in self._jobs.values())

    def take(self, room: int, now: float) -> list[Piece]:
        """Rows for a batch of at most `room`; dead jobs are dropped on the way.

        All rows of one job in one batch are one piece.
        """
        taken: dict[Job, Piece] = {}
        while room and self._jobs:
            share = max(room // len(self._jobs), 1)
            for client in list(self._jobs):
                room -= self._take_from(client, min(share, room), now, taken)
                if not room:
                    break
        return list(taken.values())

    def _take_from(
        self,
        client: str,
        room: int,
        now: float,
        taken: dict[Job, Piece],
    ) -> int:
        """Move up to `room` rows of one client; how many it were."""
        jobs = self._jobs.pop(client)
        left, dead = room, 0
        while jobs and left:
            job = jobs[0]
            waiting = job.rows - job.taken
            if job.drop_if_dead(now):
                dead += waiting
                jobs.popleft()
                continue
            rows = min(waiting, left)
            start = taken[job].start if job in taken else job.taken
            job.taken += rows
            taken[job] = Piece(job, start, job.taken)
            left -= rows
            if rows == waiting:
                jobs.popleft()
        self._leave(client, room - left + dead)
        if jobs:
            self._jobs[client] = jobs
        return room - left

    def newest(self, client: str) -> Iterator[Job]:
        """A client's jobs of which no row has run, the newest first."""
        for job in reversed(self._jobs.get(client, ())):
            if job.taken:
                return
            yield job

    def drop_newest(self, client: str) -> None:
        """Take a client's newest job out."""
        jobs = self._jobs[client]
        self._leave(client, jobs.pop().rows)
        if not jobs:
            del self._jobs[client]

    def drop_dead(self, now: float) -> None:
        """Drop all dead jobs."""
        for client, jobs in list(self._jobs.items()):
            alive = deque([job for job in jobs if not job.drop_if_dead(now)])
            left = sum([job.rows - job.taken for job in alive])
            self._leave(client, self.waiting[client] - left)
            self._jobs[client] = alive
            if not alive:
                del self._jobs[client]

    def _leave(self, client: str, rows: int) -> None:
        self.rows -= rows
        self.waiting[client] -= rows
        if not self.waiting[client]:
            del self.waiting[client]
