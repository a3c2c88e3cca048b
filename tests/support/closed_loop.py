"""A closed loop in virtual time: clients, one device, and a release rule."""

import heapq
import itertools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.batching.batch_times import BatchTimes
from app.batching.release import Release

MAX_BATCH_SIZE = 128


@dataclass(frozen=True)
class Waits:
    """Seconds from arrival to answer."""

    mean_s: float
    p95_s: float


class ClosedLoop:
    """Clients that send one row, wait for its answer, think, and send again.

    `batch_s` returns the time of a batch by its rows. `think_s` returns the think time
    of a client; it gets its number, and its position in the answered batch.
    """

    def __init__(
        self,
        rule: Callable[[Callable[[int], float]], Release],
        clients: int,
        batch_s: Callable[[int], float],
        think_s: Callable[[random.Random, int, int], float],
    ) -> None:
        self._times = BatchTimes()
        self._rule = rule(self._times.expected_s)
        self._batch_s, self._think_s = batch_s, think_s
        self._chance = random.Random(1)
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._waiting: list[tuple[float, int]] = []
        # Arrivals that the rule does not know yet, and how many rows it waits for.
        self._news: list[tuple[int, float]] = []
        self._wake_at = 0.0
        self._running = False
        self._decisions = 0
        self._waits: list[float] = []
        for client in range(clients):
            self._at(self._chance.uniform(0, 2), self._arrive, client)

    def run(self, requests: int) -> Waits:
        """Run until `requests` are answered; the first tenth does not count."""
        while len(self._waits) < requests:
            self._now, _, happens, what = heapq.heappop(self._events)
            happens(what)
        waits = sorted(self._waits[requests // 10 :])
        return Waits(statistics.fmean(waits), waits[int(0.95 * len(waits))])

    def _at(self, when: float, happens: Callable[..., None], what: Any) -> None:
        heapq.heappush(self._events, (when, next(self._order), happens, what))

    def _arrive(self, client: int) -> None:
        self._waiting.append((self._now, client))
        self._news.append((1, self._now))
        if len(self._waiting) >= self._wake_at:
            self._decide(self._decisions)

    def _decide(self, decision: int) -> None:
        if self._running or not self._waiting or decision != self._decisions:
            return
        self._decisions += 1
        self._wake_at = hold_s = 0.0
        self._tell()
        if len(self._waiting) < MAX_BATCH_SIZE:
            oldest_at = self._waiting[0][0]
            hold_s = self._rule.hold_s(len(self._waiting), oldest_at, self._now)
        if hold_s > 0:
            rows = len(self._waiting) + self._rule.rows_to_await()
            self._wake_at = min(rows, MAX_BATCH_SIZE)
            self._at(self._now + hold_s, self._decide, self._decisions)
            return
        batch = self._waiting[:MAX_BATCH_SIZE]
        del self._waiting[:MAX_BATCH_SIZE]
        self._running = True
        took_s = self._batch_s(len(batch))
        self._times.add(len(batch), took_s)
        self._at(self._now + took_s, self._finish, batch)

    def _tell(self) -> None:
        self._rule.arrived(self._news)
        self._news = []

    def _finish(self, batch: list[tuple[float, int]]) -> None:
        self._running = False
        self._tell()
        self._rule.finished(len(batch), self._now)
        for place, (arrived_at, client) in enumerate(batch):
            self._waits.append(self._now - arrived_at)
            after_s = self._think_s(self._chance, client, place)
            self._at(self._now + after_s, self._arrive, client)
        self._decide(self._decisions)
