"""The Executor: runs batches so that one row's failure fails no other job.

A batch that the model fails on runs again in halves, until only the failing jobs are
left; one that runs out of device memory, in smaller parts.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from app.batching.batch_ceiling import BatchCeilings
from app.batching.batch_memory import BatchMemory
from app.batching.batch_times import BatchTimes
from app.batching.circuit_breaker import CircuitBreaker
from app.batching.execution import answer, checked, compute, fail, padded
from app.batching.fair_queue import JobSlice, cut, rows_in
from app.batching.interfaces import Observer
from app.batching.job import Key
from app.batching.model_log import ModelLog
from app.batching.retry_budget import RetryBudget, error_of_each
from app.engines.base import Engine, Tensors, main_signature
from app.errors import (
    BasketError,
    ModelBroken,
    ModelFailed,
    OutOfDeviceMemory,
    RefusedInput,
)


class Executor:
    """Runs batches on one engine and gives each job its own answer.

    `times` estimates how long batches take, by the rows that they are padded to.
    `before_notify` is called when a batch, or a part of it, has run and before its
    jobs are notified, as their clients may send the next requests at once.
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
        allowed_batch_sizes; a model may limit its own. `known_good` has, for each
        signature with a circuit breaker, a batch that the model has computed. A test
        replaces `clock`.
        """
        self._engine = engine
        self._observer = observer
        self.log = log
        # Bisected for each batch, several times faster than a range.
        self._sizes = {
            name: tuple(signature.batch_sizes(sizes))
            for name, signature in engine.signatures.items()
        }
        self._main_sizes = self._sizes[main_signature(engine.signatures)[0]]
        self._clock = clock
        self.times = BatchTimes()
        self.before_notify: Callable[[], object] = lambda: None
        self.ceilings = BatchCeilings(self._sizes, clock)
        self._circuit_breakers = {
            name: CircuitBreaker(partial(self._probe, name, batch), log, clock)
            for name, batch in (known_good or {}).items()
        }
        # Rows of the batch that runs, and since when.
        self._running: tuple[int, float] | None = None
        # When the last batch ended or was refused.
        self._finished_at = clock()
        # As many as batches have run at the same time: one, unless batching is off.
        self._idle_memories: list[BatchMemory] = []

    @property
    def max_batch_size(self) -> int:
        """The most rows that any batch may have."""
        return max(sizes[-1] for sizes in self._sizes.values())

    def running(self) -> tuple[int, float] | None:
        """Return the rows of the batch that runs, and for how many seconds it has."""
        running = self._running
        if running is None:
            return None
        rows, started_at = running
        return rows, self._clock() - started_at

    def expected_s(self, rows: int) -> float:
        """Return the expected seconds of a batch, once padded; 0: not known.

        Where signatures have different sizes, it is padded to those of the main one.
        """
        return self.times.expected_s(padded(rows, self._main_sizes))

    def execute(self, batch: Sequence[JobSlice], *, back_to_back: bool = False) -> None:
        """Run one batch and answer its jobs; raise nothing.

        A failed batch of n jobs has at most n or 8 log2 n reruns, besides those in
        smaller parts for lack of device memory. The time of a `back_to_back`
        batch, which did not wait for rows, counts from the end of the last one, so
        that it includes the notification of that one's jobs.
        """
        breaker = self._circuit_breakers.get(batch[0].job.signature_name)
        pause_s = breaker.pause_s() if breaker else 0.0
        if pause_s:
            broken = ModelBroken(
                "the model fails on everything at present", math.ceil(pause_s)
            )
            fail(batch, broken)
            self._finished_at = self._clock()
            return
        error = self._run(batch, back_to_back=back_to_back)
        succeeded = error is None or self._isolate(batch, error)
        if breaker and succeeded:
            breaker.batch_succeeded()
        elif breaker and isinstance(error, ModelFailed):
            breaker.batch_failed()

    def close(self) -> None:
        """Close the engine; log what it raises."""
        try:
            self._engine.close()
        except Exception:  # an engine may raise anything
            self.log.exception("its engine did not close in order")

    def _isolate(self, batch: Sequence[JobSlice], error: BasketError) -> bool:
        """Rerun a failed batch in parts until only the jobs at fault fail.

        Return whether any part succeeded.
        """
        rows = rows_in(batch)
        if isinstance(error, RefusedInput):
            self.log.info("a batch of %d: %s", rows, error)
        else:
            self.log.error("a batch of %d: %s", rows, error, exc_info=error.__cause__)
        budget = RetryBudget(len(batch))
        key = batch[0].job.key
        failed = [(batch, error)]
        while failed:
            group, error = failed.pop()
            waiting = sum(len(other) for other, _ in failed)
            parts = self._parts(group, error) or budget.parts(group, error, waiting)
            if not parts:
                fail(group, error_of_each(len(group), error))
            # Cut as late as possible: each part may lower the ceiling for the next.
            for part in cut(parts, lambda: self.ceilings.limit(key)):
                alive = [s for s in part if not s.job.drop_if_dead(self._clock())]
                if alive:
                    self._observer.batch_reran()
                    if not isinstance(error, OutOfDeviceMemory):
                        budget.spent += 1
                    new_error = self._run(alive)
                    if new_error is None:
                        budget.has_success = True
                    else:
                        failed.append((alive, new_error))
        return budget.has_success

    def _parts(
        self, batch: Sequence[JobSlice], error: BasketError
    ) -> list[Sequence[JobSlice]]:
        """Return what runs again after a lack of memory, cut to the new ceiling."""
        smallest = self._sizes[batch[0].job.signature_name][0]
        is_too_large = isinstance(error, OutOfDeviceMemory)
        return [batch] if is_too_large and rows_in(batch) > smallest else []

    def _run(
        self, batch: Sequence[JobSlice], *, back_to_back: bool = False
    ) -> BasketError | None:
        """Run one batch and answer its jobs, or return why it failed."""
        rows = rows_in(batch)
        size = padded(rows, self._sizes[batch[0].job.signature_name])
        started_at = self._clock()
        self._running = rows, started_at
        for job, _, _ in batch:
            # Not of a job whose first rows were in an earlier batch.
            job.started_at = job.started_at or started_at
        outputs: Tensors = {}
        failure: BasketError | None = None
        try:
            memory = self._idle_memories.pop()
        except IndexError:
            memory = BatchMemory()
        try:
            outputs = compute(self._engine, batch, rows, size, memory)
            # Not after an error: something may still read the memory.
            self._idle_memories.append(memory)
        except BasketError as error:
            failure = error
        finally:
            self._running = None
        finished_at = self._end(batch, rows, started_at, failure, back_to_back)
        if failure is None:
            answer(batch, outputs, rows, finished_at)
        return failure

    def _end(
        self,
        batch: Sequence[JobSlice],
        rows: int,
        started_at: float,
        failure: BasketError | None,
        back_to_back: bool,
    ) -> float:
        """Record the end of a batch before its jobs are notified, and return when."""
        finished_at = self._clock()
        key = batch[0].job.key
        # Before the answers, so that a client with an answer finds it in the metrics.
        self._observer.batch_ran(rows, finished_at - started_at, batch, failure)
        since = self._finished_at if back_to_back else started_at
        self._finished_at = finished_at
        size = padded(rows, self._sizes[key[0]])
        self._learn(key, size, finished_at - since, failure)
        if failure is None:
            self.before_notify()
        return finished_at

    def _learn(
        self, key: Key, size: int, seconds: float, failure: BasketError | None
    ) -> None:
        """Update the estimates and the batch ceiling."""
        if failure is None:
            self.times.add(size, seconds)
            moved = self.ceilings.fitted(key, size)
        elif isinstance(failure, OutOfDeviceMemory):
            self.ceilings.overflowed(key, size)
            moved = True
        else:
            return
        if moved:
            self._observer.batch_limited(self.ceilings.lowest())

    def _probe(self, signature_name: str, batch: Tensors) -> bool:
        """Run a batch that the model has computed before; return whether it does."""
        (rows, *_) = map(len, batch.values())
        self._running = rows, self._clock()
        try:
            outputs = self._engine.run(batch, signature_name)
            checked(outputs, rows, self._engine.signatures[signature_name])
        except BaseException:  # a model may raise anything
            return False
        finally:
            self._running = None
        return True
