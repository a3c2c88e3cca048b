"""Writes one process's counts of a rollout: a table in memory, mapped from a file."""

import math
import mmap
import os
from pathlib import Path

import numpy as np

from app.promotion.counts import (
    BUCKETS,
    COLUMNS,
    ERROR_PAIRS,
    ERRORS,
    FAILED_PAIRS,
    FIRST_EDGE_S,
    LATENCIES,
    LATENCY_PAIRS,
    NAN_PAIRS,
    NOT_A_NUMBER,
    PHASES,
    RATIO,
    REFUSED,
    REQUESTS,
    SHAPE,
    Table,
)

# Of the layout; with a table of another shape it gets another number.
_MAGIC = b"basket-rollout-1"
_FILE_BYTES = len(_MAGIC) + math.prod(SHAPE) * 8
_REFUSED, _LATE = 503, 504
_ERRORS = (500, 504, 507)
_LOG_RATIO = math.log(RATIO)
# A group takes those who arrived until so long after its first answer, and ends so long
# after it: requests in a queue or a pause together are one group, also of slow models.
_GROUP_S, _LONGEST_GROUP_S = 0.05, 1.0


class _Group:
    """Requests of one side that were answered together, the first at `began_at`.

    Of each kind of hit it has the number so far; `buckets` those of latencies.
    """

    __slots__ = ("began_at", "buckets", "errors", "failed", "not_a_number")

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.errors = self.failed = self.not_a_number = 0
        self.buckets: dict[int, int] = {}

    def takes(self, now: float, seconds: float) -> bool:
        """Return whether a request that is answered now belongs to the group."""
        began_at = self.began_at
        if now > began_at + _LONGEST_GROUP_S:
            return False
        return now - seconds <= began_at + _GROUP_S


class Writer:
    """The table of one process and rollout. It is for one thread at a time."""

    def __init__(self, mapped: mmap.mmap | None = None) -> None:
        """Store a file that `create` has mapped; None: keep the table in memory."""
        self.is_file = mapped is not None
        content = bytearray(_FILE_BYTES) if mapped is None else mapped
        self._content = memoryview(content)
        self._content[: len(_MAGIC)] = _MAGIC
        self._cells = self._content[len(_MAGIC) :].cast("q")
        # By phase and side.
        self._groups = [_Group(-math.inf) for _ in range(2 * PHASES)]

    def add(
        self, side: int, status: int, seconds: float, has_nan: bool, now: float
    ) -> None:
        """Count a request: a hit that follows n others adds 2n + 1 pairs."""
        cells, row = self._cells, side * COLUMNS
        group = self._groups[side]
        if not group.takes(now, seconds):
            group = self._groups[side] = _Group(now)
        if status in _ERRORS or status == _REFUSED:
            cells[row + FAILED_PAIRS] += 2 * group.failed + 1
            group.failed += 1
        if status == _REFUSED:
            # It says nothing about errors, and would hide those of the others.
            cells[row + REFUSED] += 1
            return
        if status in _ERRORS:
            cells[row + ERROR_PAIRS] += 2 * group.errors + 1
            group.errors += 1
            cells[row + ERRORS] += 1
        if has_nan:
            cells[row + NAN_PAIRS] += 2 * group.not_a_number + 1
            group.not_a_number += 1
            cells[row + NOT_A_NUMBER] += 1
        # Other failures are fast, and would hide how slow the rest is.
        if status < 300 or status == _LATE:  # noqa: PLR2004
            self._add_latency(row, group.buckets, _bucket(seconds))
        cells[row + REQUESTS] += 1

    def _add_latency(self, row: int, buckets: dict[int, int], bucket: int) -> None:
        """Count a latency, and its pairs by the faster one of each."""
        cells, pairs = self._cells, row + LATENCY_PAIRS
        new = 1
        for other, number in buckets.items():
            if other < bucket:
                cells[pairs + other] += 2 * number
            else:
                new += 2 * number
        cells[pairs + bucket] += new
        cells[row + LATENCIES + bucket] += 1
        buckets[bucket] = buckets.get(bucket, 0) + 1

    def table(self) -> Table | None:
        """Return a copy of the table."""
        return table_in(bytes(self._content))


def _bucket(seconds: float) -> int:
    """Return the first bucket whose upper edge is not below."""
    if seconds <= FIRST_EDGE_S:
        return 0
    bucket = math.ceil(math.log(seconds / FIRST_EDGE_S) / _LOG_RATIO - 1e-9)
    return min(bucket, BUCKETS - 1)


def create(path: Path) -> Writer:
    """Create a file and return its writer.

    Its space is allocated here, as writing where there is none would end the process
    with SIGBUS; and under another name, so that no reader finds it without its header.

    Raises:
        OSError: there is no space, or the folder can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    created = path.with_name(f".{path.name}")
    with created.open("xb+") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, _FILE_BYTES)
            writer = Writer(mmap.mmap(file.fileno(), _FILE_BYTES))
            created.rename(path)
        except OSError:
            created.unlink(missing_ok=True)
            raise
    return writer


def table_in(content: bytes) -> Table | None:
    """Return the table in a file's content, or None if it is not one."""
    if len(content) != _FILE_BYTES or not content.startswith(_MAGIC):
        return None
    return np.frombuffer(content, np.int64, offset=len(_MAGIC)).reshape(SHAPE)
