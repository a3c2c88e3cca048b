"""Fair queueing: each client's jobs in order, batches shared between clients."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from app.batching.job import Job, Key

# Clients whose last batch is remembered.
_MOST_SERVED = 1024


class JobSlice(NamedTuple):
    """Rows `start` to `stop` of a job, in one batch."""

    job: Job
    start: int
    stop: int


# Returns JobSlice(job, start, stop) of a tuple, without a call of Python.
job_slice: Callable[[tuple[Job, int, int]], JobSlice] = partial(tuple.__new__, JobSlice)


def rows_in(slices: Iterable[JobSlice]) -> int:
    """Return the number of rows in all slices."""
    return sum([stop - start for _, start, stop in slices])


def cut(
    parts: Sequence[Sequence[JobSlice]], limit: Callable[[], int]
) -> Iterator[list[JobSlice]]:
    """Yield the parts in groups of at most `limit()` rows; a slice may be cut, too."""
    for part in parts:
        left = list(reversed(part))
        while left:
            group: list[JobSlice] = []
            free = limit()
            while left and free:
                job, start, stop = left.pop()
                middle = min(stop, start + free)
                group.append(JobSlice(job, start, middle))
                free -= middle - start
                if middle < stop:
                    left.append(JobSlice(job, middle, stop))
            yield group


class ClientRows:
    """The number of queued rows of each client.

    Clients are counted by their rows, too: a thousand rows have at most some 45
    different counts, so that what is asked for each request costs the same with one
    client and with a thousand.
    """

    def __init__(self) -> None:
        self.total = 0
        self._rows: dict[str, int] = {}
        # Number of rows -> clients that have so many.
        self._clients: dict[int, int] = {}

    def add(self, client: str, rows: int) -> None:
        """Add rows to a client's, or subtract them if negative."""
        before = self._rows.get(client, 0)
        after = before + rows
        clients = self._clients
        if before:
            clients[before] -= 1
            if not clients[before]:
                del clients[before]
        if after:
            self._rows[client] = after
            clients[after] = clients.get(after, 0) + 1
        else:
            self._rows.pop(client, None)
        self.total += rows

    def of(self, client: str) -> int:
        """Return a client's rows."""
        return self._rows.get(client, 0)

    def above(self, rows: int) -> dict[str, int]:
        """Return the rows of each client that has more than so many."""
        if max(self._clients, default=0) <= rows:
            return {}
        return {client: count for client, count in self._rows.items() if count > rows}

    def up_to(self, share: int) -> int:
        """Return all rows, where each client counts for at most `share`."""
        return sum([min(rows, share) * n for rows, n in self._clients.items()])


class FairQueue:
    """The queued jobs of one key.

    Max-min fair sharing: a batch is divided evenly among the clients with queued rows,
    and what one does not need goes to the others. Clients are served round-robin.
    """

    def __init__(self, clients: ClientRows) -> None:
        """Count rows in `clients`, which other fair queues may share."""
        self.rows = 0
        self._clients = clients
        # In the order in which clients are served next.
        self._jobs: dict[str, deque[Job]] = {}

    def __iter__(self) -> Iterator[Job]:
        """Iterate over all jobs, client by client."""
        for jobs in self._jobs.values():
            yield from jobs

    def add(self, job: Job) -> None:
        """Queue a job behind the others of its client."""
        client, rows = job.client, job.rows
        jobs = self._jobs.get(client)
        if jobs is None:
            self._jobs[client] = deque((job,))
        else:
            jobs.append(job)
        self._add(client, rows)

    def next_client(self) -> str:
        """Return the client that was served longest ago."""
        return next(iter(self._jobs))

    def oldest_at(self) -> float:
        """Return when the oldest job arrived."""
        return min([jobs[0].enqueued_at for jobs in self._jobs.values()])

    def take(self, max_rows: int, now: float) -> list[JobSlice]:
        """Remove and return a batch of at most `max_rows`, and drop dead jobs.

        All rows of one job in one batch are one slice.
        """
        taken: dict[Job, JobSlice] = {}
        while max_rows and self._jobs:
            share = max(max_rows // len(self._jobs), 1)
            for client in list(self._jobs):
                max_rows -= self._take_from(client, min(share, max_rows), now, taken)
                if not max_rows:
                    break
        return list(taken.values())

    def _take_from(
        self, client: str, max_rows: int, now: float, taken: dict[Job, JobSlice]
    ) -> int:
        """Move up to `max_rows` of one client into `taken`; return how many."""
        jobs = self._jobs.pop(client)
        free, dead = max_rows, 0
        while jobs and free:
            job = jobs[0]
            queued = job.rows - job.taken
            if job.drop_if_dead(now):
                dead += queued
                jobs.popleft()
                continue
            rows = min(queued, free)
            start = taken[job].start if job in taken else job.taken
            job.taken += rows
            taken[job] = JobSlice(job, start, job.taken)
            free -= rows
            if rows == queued:
                jobs.popleft()
        self._add(client, free - max_rows - dead)
        if jobs:
            self._jobs[client] = jobs
        return max_rows - free

    def newest(self, client: str) -> Iterator[Job]:
        """Yield a client's jobs of which no row has run, the newest first."""
        for job in reversed(self._jobs.get(client, ())):
            if job.taken:
                return
            yield job

    def drop_newest(self, client: str) -> None:
        """Remove a client's newest job."""
        jobs = self._jobs[client]
        self._add(client, -jobs.pop().rows)
        if not jobs:
            del self._jobs[client]

    def drop_dead(self, now: float) -> None:
        """Remove all dead jobs."""
        for client, jobs in list(self._jobs.items()):
            # Nothing is allocated for the many clients whose jobs are all alive.
            dead = {job for job in jobs if job.drop_if_dead(now)}
            if not dead:
                continue
            self._add(client, -sum([job.rows - job.taken for job in dead]))
            alive = deque([job for job in jobs if job not in dead])
            self._jobs[client] = alive
            if not alive:
                del self._jobs[client]

    def _add(self, client: str, rows: int) -> None:
        self.rows += rows
        self._clients.add(client, rows)


class FairQueues:
    """The fair queues of all keys.

    Next comes the queue of the client, and of a client's the queue, that was served
    longest ago: many keys get a client no more than its share.
    """

    def __init__(self) -> None:
        self.clients = ClientRows()
        # In the order in which keys are served next.
        self._queues: dict[Key, FairQueue] = {}
        # The number of the last batch of each client, the latest last.
        self._served: dict[str, int] = {}
        self._batches = 0

    def __len__(self) -> int:
        """Return the number of keys with queued jobs."""
        return len(self._queues)

    def __iter__(self) -> Iterator[Job]:
        """Iterate over all jobs."""
        return itertools.chain.from_iterable(self._queues.values())

    def add(self, job: Job) -> None:
        """Queue a job."""
        fair_queue = self._queues.get(job.key)
        if fair_queue is None:
            fair_queue = self._queues[job.key] = FairQueue(self.clients)
        fair_queue.add(job)

    def in_turn(self) -> Iterable[tuple[Key, FairQueue]]:
        """Return the queues by key, the next one first."""
        if len(self._queues) == 1:
            return self._queues.items()
        # Among those of one client the order stays.
        return sorted(
            self._queues.items(),
            key=lambda item: self._served.get(item[1].next_client(), -1),
        )

    def take(self, key: Key, max_rows: int, now: float) -> list[JobSlice]:
        """Remove and return a batch of a key's rows, and drop its dead jobs."""
        fair_queue = self._queues.pop(key)
        batch = fair_queue.take(max_rows, now)
        if fair_queue.rows:
            self._queues[key] = fair_queue
        return batch

    def note(self, batch: Iterable[JobSlice]) -> None:
        """Note that the clients of a batch were served."""
        self._batches += 1
        served = self._served
        for client in dict.fromkeys([job.client for job, _, _ in batch]):
            served.pop(client, None)
            served[client] = self._batches
        while len(served) > _MOST_SERVED:
            del served[next(iter(served))]

    def drop_dead(self, now: float) -> None:
        """Remove all dead jobs."""
        for key, fair_queue in list(self._queues.items()):
            fair_queue.drop_dead(now)
            self._drop_if_empty(key)

    def evict(self, rows: int, fewest: int) -> list[Job] | None:
        """Remove at least so many rows from the clients that have most; return the jobs.

        Each is its client's newest job, and none is of a client with at most `fewest`
        rows at that moment. None: there are too few, and no job is removed.
        """
        left = self.clients.above(fewest)
        newest: dict[str, Iterator[Job]] = {}
        evicted = []
        while rows > 0:
            client = max(left, key=left.__getitem__, default="")
            if left.get(client, 0) <= fewest:
                return None
            job = next(newest.setdefault(client, self._newest(client)), None)
            if job is None:
                return None
            evicted.append(job)
            left[client] -= job.rows
            rows -= job.rows
        for job in evicted:
            self._queues[job.key].drop_newest(job.client)
            self._drop_if_empty(job.key)
        return evicted

    def _newest(self, client: str) -> Iterator[Job]:
        """Yield a client's jobs of which no row has run, the newest first."""
        of_keys = [each.newest(client) for each in self._queues.values()]
        return heapq.merge(*of_keys, key=lambda job: -job.enqueued_at)

    def _drop_if_empty(self, key: Key) -> None:
        if not self._queues[key].rows:
            del self._queues[key]
