"""The Executor: runs batches so that one row's failure is nobody else's.

A batch that the model fails on runs again by halves, until only the guilty jobs are
left; one that does not fit into the device's memory, in smaller parts.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from app.batching.batch_ceiling import BatchCeilings
from app.batching.batch_memory import BatchMemories
from app.batching.batch_times import BatchTimes
from app.batching.circuit_breaker import CircuitBreaker
from app.batching.execution import checked, compute, padded
from app.batching.fair_queue import Piece, cut, rows_in
from app.batching.interfaces import Observer
from app.batching.job import Key, notify
from app.batching.model_log import ModelLog
from app.batching.retry_budget import RetryBudget
from app.engines.base import Engine, Tensors
from app.errors import BasketError, ModelBroken, ModelFailed, OutOfDeviceMemory


class Executor:
    """Runs batches on one engine, and sees to it that each job gets its own answer.

    `times` says how long batches take, by the rows that they are filled up to.
    `before_answers` is called when a batch has run, or a part of it, and nobody has
    been told: whoever has an answer may be back with more at once.
    """

    def __init__(
        self,
        engine: Engine,
        observer: Observer,
        log: ModelLog,
        sizes: Sequence[int],
        known_good: Mapping[str, Tensors] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the parts.

        `sizes` are those that a batch may have, increasing: range(1, 65), or
        allowed_batch_sizes. `known_good` has a batch for each signature that the
        model is known to compute. A test drives `clock`, which is in seconds.
        """
        self._engine = engine
        self._observer = observer
        self.log = log
        self._sizes = sizes
        self._clock = clock
        self.times = BatchTimes()
        self.before_answers: Callable[[], object] = lambda: None
        self._ceilings = BatchCeilings(sizes, clock)
        self._fuses = {
            name: CircuitBreaker(partial(self._computes, name, batch), log, clock)
            for name, batch in (known_good or {}).items()
        }
        # Rows of the batch that runs, and since when; when the last one ended, or was
        # refused.
        self._running: tuple[int, float] | None = None
        self._finished_at = clock()
        self._stacks = BatchMemories()

    @property
    def max_batch_size(self) -> int:
        """The most rows that any batch may have."""
        return self._sizes[-1]

    def limit(self, key: Key) -> int:
        """The most rows that a batch of this key may have now."""
        return self._ceilings.limit(key)

    def lowest_limit(self) -> int:
        """The most rows that a batch of any key may have now."""
        return self._ceilings.lowest()

    def running(self) -> tuple[int, float] | None:
        """Rows of the batch that runs now, and for how many seconds it has."""
        running = self._running
        if running is None:
            return None
        rows, started_at = running
        return rows, self._clock() - started_at

    def expected_s(self, rows: int) -> float:
        """The seconds to expect of a batch of so many rows, filled up; 0: not known."""
        return self.times.expected_s(padded(rows, self._sizes))

    def execute(self, pieces: Sequence[Piece], *, follows: bool = False) -> None:
        """Run one batch and answer its jobs; raises nothing.

        Of a batch of n jobs that fails there are at most n or 8 log2 n reruns, and
        those in smaller parts for the device's memory. One that `follows` the last
        batch, because nothing was waited for, takes as long as it is since then: its
        predecessor's answers were given out meanwhile.
        """
        fuse = self._fuses.get(pieces[0].job.signature_name)
        pause_s = fuse.pause_s() if fuse else 0.0
        if pause_s:
            broken = ModelBroken(
                "the model fails on everything at present", math.ceil(pause_s)
            )
            _fail(pieces, broken)
            self._finished_at = self._clock()
            return
        error = self._attempt(pieces, follows=follows)
        succeeded = error is None or self._isolate(pieces, error)
        if fuse and succeeded:
            fuse.batch_succeeded()
        elif fuse and isinstance(error, ModelFailed):
            fuse.batch_failed()

    def close(self) -> None:
        """Close the engine; what it raises is logged."""
        try:
            self._engine.close()
        except Exception:  # an engine may raise anything
            self.log.exception("its engine did not close in order")

    def _isolate(self, pieces: Sequence[Piece], error: BasketError) -> bool:
        """Run a failed batch again in parts until only those fail that must.

        Says whether any part succeeded.
        """
        rows = rows_in(pieces)
        self.log.error("a batch of %d: %s", rows, error, exc_info=error.__cause__)
        budget = RetryBudget(len(pieces))
        key = pieces[0].job.key
        failed = [(pieces, error)]
        while failed:
            group, error = failed.pop()
            parts = self._parts(group, error, budget)
            if not parts:
                _fail(group, error)
            # Cut as late as can be: each part may lower the limit for the next.
            for part in cut(parts, lambda: self.limit(key)):
                wanted = [p for p in part if not p.job.drop_if_dead(self._clock())]
                if wanted:
                    self._observer.batch_reran()
                    if not isinstance(error, OutOfDeviceMemory):
                        budget.spend()
                    again = self._attempt(wanted)
                    if again is None:
                        budget.has_success = True
                    else:
                        failed.append((wanted, again))
        return budget.has_success

    def _parts(
        self, pieces: Sequence[Piece], error: BasketError, budget: RetryBudget
    ) -> list[Sequence[Piece]]:
        """What of a failed batch is worth another run; nothing: let it fail."""
        if isinstance(error, OutOfDeviceMemory):
            return [pieces] if rows_in(pieces) > self._sizes[0] else []
        if type(error) is ModelFailed and len(pieces) > 1 and budget.is_left():
            middle = len(pieces) // 2
            return [pieces[:middle], pieces[middle:]]
        return []

    def _attempt(
        self, pieces: Sequence[Piece], *, follows: bool = False
    ) -> BasketError | None:
        """Run the pieces as one batch; answers them, or returns why that failed."""
        rows, key = rows_in(pieces), pieces[0].job.key
        size = padded(rows, self._sizes)
        started_at = self._clock()
        self._running = rows, started_at
        for piece in pieces:
            piece.job.start(started_at)
        outputs: Tensors = {}
        failure: BasketError | None = None
        try:
            with self._stacks.one() as stack:
                outputs = compute(self._engine, pieces, size, stack)
        except BasketError as error:
            failure = error
        finally:
            self._running = None
        finished_at = self._clock()
        # Before the answers: who has one finds its batch in the metrics.
        self._observer.batch_ran(rows, finished_at - started_at)
        since = self._finished_at if follows else started_at
        self._finished_at = finished_at
        self._learn(key, size, finished_at - since, failure)
        if failure is None:
            self.before_answers()
            _answer(pieces, outputs, finished_at)
        return failure

    def _learn(
        self, key: Key, size: int, seconds: float, failure: BasketError | None
    ) -> None:
        if failure is None:
            self.times.add(size, seconds)
            moved = self._ceilings.fitted(key, size)
        elif isinstance(failure, OutOfDeviceMemory):
            moved = self._ceilings.overflowed(key, size)
        else:
            return
        if moved:
            self._observer.batch_limited(self._ceilings.lowest())

    def _computes(self, signature_name: str, batch: Tensors) -> bool:
        (rows, *_) = map(len, batch.values())
        self._running = rows, self._clock()
        try:
            given = self._engine.run(batch, signature_name)
            checked(given, rows, self._engine.signatures[signature_name])
        except BaseException:  # a model may raise anything
            return False
        finally:
            self._running = None
        return True


def _fail(pieces: Sequence[Piece], error: BasketError) -> None:
    for piece in pieces:
        piece.job.fail(error)


def _answer(pieces: Sequence[Piece], outputs: Tensors, now: float) -> None:
    begin, batch_rows = 0, rows_in(pieces)
    answered = []
    for job, start, stop in pieces:
        end = begin + stop - start
        rows = {name: array[begin:end] for name, array in outputs.items()}
        if job.add(start, rows, batch_rows, now):
            answered.append(job)
        begin = end
    notify(answered)
