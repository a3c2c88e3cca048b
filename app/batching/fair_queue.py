"""Fair queueing: slices of jobs, shares of clients in a batch, and whose turn it is."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.batching.job import Job

# Clients and keys whose last turn is remembered.
_MOST_SERVED = 2048


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


def max_min_shares(rows: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return how many of its rows each client gets of a batch of at most `limit`.

    Max-min fair sharing: the batch is divided evenly, and what a client does not need
    goes to the others. A rest goes to the first clients.
    """
    shares = dict.fromkeys(rows, 0)
    left = dict(rows)
    while limit and left:
        even = max(limit // len(left), 1)
        for client in list(left):
            share = min(even, left[client], limit)
            shares[client] += share
            left[client] -= share
            limit -= share
            if not left[client]:
                del left[client]
    return shares


class Turns:
    """When clients and keys were served last."""

    def __init__(self) -> None:
        # The number of the turn, the latest last.
        self._served: dict[Hashable, int] = {}
        self._numbers = itertools.count(1)

    def note(self, served: Iterable[Hashable]) -> None:
        """Note whose turn it was, in this order."""
        for each in served:
            self._served.pop(each, None)
            self._served[each] = next(self._numbers)
        while len(self._served) > _MOST_SERVED:
            del self._served[next(iter(self._served))]

    def last(self, each: Hashable) -> int:
        """Return the number of its last turn, 0 before the first one."""
        return self._served.get(each, 0)
