"""A job: one call's rows, and the one answer that they get."""

import threading
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Tensors
from app.errors import Abandoned, BadInput, Late

if TYPE_CHECKING:
    from app.batching.interfaces import Runner

# Jobs with equal keys may share a batch: the signature's name, and each input's name,
# dtype and row shape.
Key = tuple[str, tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]]

# How long `wait` blocks after the deadline for an answer that is being set.
_NOTIFY_TIMEOUT_S = 1.0

# Gets all answered jobs of a batch that share it, in one call by the thread that
# answers; must neither wait nor raise.
Wake = Callable[[Sequence["Job"]], object]


class Job:
    """One call's rows, waiting for exactly one answer.

    An event loop sets `wake`, submits the job, and calls `result` once woken. A thread
    submits it and blocks in `wait`. The thread that answers acquires `claim` first, so
    that no second answer follows. Times are seconds on the monotonic clock: the first
    row started to run at `started_at`, the last one had run at `finished_at`, and
    `batch_rows` is the largest batch that any row ran in. The rows have to be run
    `reserve_s` before the deadline, which leaves time to write the response.
    """

    # Defaults on the class, so that the constructor, called for each request, sets few.
    wake: Wake | None = None
    # Whatever `wake` needs to find the job's request.
    owner: Any = None
    outputs: Tensors | None = None
    error: Exception | None = None
    batch_rows: int = 0
    # Rows already in a batch; only the thread that takes rows uses it.
    taken: int = 0
    reserve_s: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    # W3C's name of the request's span, if the request is traced.
    traceparent: str | None = None
    # Whether the job failed before it was in any queue.
    was_refused: bool = False
    # Whether the client has gone.
    is_abandoned: bool = False
    # Called when nobody waits for the rows any more: the client has gone, or the job
    # has failed. A shared model sets it, to cancel the rows in its process.
    on_abandoned: Callable[[], object] | None = None
    # Held while a thread blocks in `wait`.
    _waiter: "threading.Lock | None" = None
    # Of a job with more rows than a batch: outputs, each with the place of its first
    # row, and how many rows these are.
    _parts: list[tuple[int, Tensors]] | None = None
    _rows_run: int = 0

    def __init__(
        self,
        inputs: Tensors,
        deadline: float,
        signature_name: str = DEFAULT_SIGNATURE,
        client: str = "",
        key: Key | None = None,
    ) -> None:
        """Wrap inputs (rows, *shape).

        The queue is shared fairly between jobs of different `client`s. `key` may be
        one that was made before, for the same signature, dtypes and row shapes.
        """
        self.inputs = inputs
        self.deadline = deadline
        self.signature_name = signature_name
        self.client = client
        self.key = key if key is not None else _key_of(signature_name, inputs)
        self.rows = len(next(iter(inputs.values())))
        self.enqueued_at = time.monotonic()
        self.claim = threading.Lock()

    def submit(self, runner: "Runner") -> None:
        """Submit the job, or raise as Runner does."""
        try:
            runner.submit(self)
        except Exception:
            self.was_refused = True
            raise

    def wait(self) -> None:
        """Block until the answer; at the deadline fail with Late. Not with `wake`."""
        # A lock is the cheapest thing to wait on.
        waiter = threading.Lock()
        waiter.acquire()
        self._waiter = waiter
        # Checked once `notify` can see the lock.
        if self.is_answered():
            return
        left_s = self.deadline - time.monotonic()
        if waiter.acquire(timeout=max(left_s, 0)):
            return
        self.fail(Late("no answer was ready before the request's deadline"))
        # Without effect if another thread is setting an answer.
        waiter.acquire(timeout=_NOTIFY_TIMEOUT_S)

    def result(self) -> Tensors:
        """Return the outputs of an answered job.

        Raises:
            Exception: the job's own error.
        """
        if self.error is not None:
            # A batch's jobs share one error object; each raises it afresh.
            raise self.error.with_traceback(None)
        assert self.outputs is not None, "the job has no answer yet"
        return self.outputs

    def is_answered(self) -> bool:
        """Return whether there is a result or an error."""
        return self.outputs is not None or self.error is not None

    def queue_s(self) -> float:
        """Return seconds from arrival until the first row ran, or until now."""
        return (self.started_at or time.monotonic()) - self.enqueued_at

    def abandon(self) -> None:
        """Note that the client has gone: rows that do not run yet never will."""
        self.is_abandoned = True
        if self.on_abandoned is not None:
            self.on_abandoned()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless the job has an answer."""
        if self.claim.acquire(False):
            self.error = error
            notify([self])
            if self.on_abandoned is not None:
                self.on_abandoned()

    def drop_if_dead(self, now: float) -> bool:
        """Fail a job that is late or whose client has gone.

        Return whether the job has an answer, so that its rows must not run.
        """
        if self.deadline <= now:
            self.fail(Late("the request's deadline passed before its rows were run"))
        elif self.is_abandoned:
            self.fail(Abandoned("the client closed the connection"))
        return self.claim.locked()

    def add(self, start: int, outputs: Tensors, batch_rows: int, now: float) -> bool:
        """Add the outputs of some rows, from `start` on, which ran in `batch_rows`.

        Return whether they complete the answer; the caller must then call `notify`.
        """
        self._parts = parts = self._parts or []
        parts.append((start, outputs))
        self._rows_run += len(next(iter(outputs.values())))
        self.batch_rows = max(self.batch_rows, batch_rows)
        if self._rows_run < self.rows:
            return False
        try:
            joined = _concatenated(parts)
        except BadInput as error:
            self.fail(error)
            return False
        return self.succeed(joined, self.batch_rows, now)

    def succeed(self, outputs: Tensors, batch_rows: int, now: float) -> bool:
        """Answer with outputs, unless the job has an answer; return whether it did.

        The caller must then call `notify`. `batch_rows` is the largest batch.
        """
        if not self.claim.acquire(False):
            return False
        self.batch_rows = batch_rows
        self.finished_at = now
        # Last, as it makes this an answered job.
        self.outputs = outputs
        return True


class JobGroup(Job):
    """The jobs of one request whose rows have unlike shapes: one answer for all.

    Once a part fails, so do the others. `reserve_s` and `traceparent` are those of all
    parts, from `submit` on.
    """

    def __init__(
        self, parts: Sequence[Job], join: Callable[[Sequence[Tensors]], Tensors]
    ) -> None:
        """Wrap jobs; `join` makes the outputs of theirs, in this order."""
        self.deadline = parts[0].deadline
        self.rows = sum(part.rows for part in parts)
        self.enqueued_at = min(part.enqueued_at for part in parts)
        self.claim = threading.Lock()
        self.parts = parts
        self._join = join
        self._unanswered = len(parts)
        self._counting = threading.Lock()
        for part in parts:
            part.wake = self._answered

    def submit(self, runner: "Runner") -> None:
        """Submit all parts, or raise as Runner does and drop those that were queued."""
        try:
            for part in self.parts:
                part.reserve_s = self.reserve_s
                part.traceparent = self.traceparent
                runner.submit(part)
        except Exception as error:
            # A part that failed meanwhile has been the answer, and has called `wake`.
            if self.claim.acquire(False):
                self.was_refused = True
                self.error = error
                self._drop_parts()
                raise

    def abandon(self) -> None:
        """Note that the client has gone, for all parts."""
        self.is_abandoned = True
        for part in self.parts:
            part.abandon()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless the group has an answer; drop all parts."""
        if self.claim.acquire(False):
            self._sum_up()
            self.error = error
            self._drop_parts()
            notify([self])

    def queue_s(self) -> float:
        """Return seconds from arrival until the first row ran, or until now."""
        self._sum_up()
        return super().queue_s()

    def _answered(self, parts: Sequence[Job]) -> None:
        """Take answered parts; the last one completes the answer."""
        for part in parts:
            # Avoid a reference cycle.
            part.wake = None
            if part.error is not None and not self.claim.locked():
                self.was_refused = part.was_refused
                self.fail(part.error)
        with self._counting:
            self._unanswered -= len(parts)
            is_last = not self._unanswered
        if is_last and self.claim.acquire(False):
            self._sum_up()
            try:
                self.outputs = self._join([part.result() for part in self.parts])
            except Exception as error:
                self.error = error
            notify([self])

    def _drop_parts(self) -> None:
        for part in self.parts:
            part.fail(Abandoned("another row of the same request failed"))

    def _sum_up(self) -> None:
        started = [part.started_at for part in self.parts if part.started_at]
        self.started_at = min(started, default=0.0)
        self.finished_at = max(part.finished_at for part in self.parts)
        self.batch_rows = max(part.batch_rows for part in self.parts)


def notify(jobs: Sequence[Job]) -> None:
    """Notify the waiters of answered jobs; wake each event loop once for all its jobs.

    Call it once for each job, with all jobs of a batch at a time.
    """
    by_wake: dict[Wake, list[Job]] = {}
    for job in jobs:
        wake, waiter = job.wake, job._waiter  # noqa: SLF001
        if wake is not None:
            by_wake.setdefault(wake, []).append(job)
        elif waiter is not None:
            waiter.release()
    for wake, answered in by_wake.items():
        wake(answered)


def _key_of(signature_name: str, inputs: Tensors) -> Key:
    specs = [(name, each.dtype, each.shape[1:]) for name, each in inputs.items()]
    return signature_name, tuple(specs)


def _concatenated(parts: list[tuple[int, Tensors]]) -> Tensors:
    in_order = [outputs for _, outputs in sorted(parts, key=itemgetter(0))]
    return {
        name: _joined_rows(name, [outputs[name] for outputs in in_order])
        for name in in_order[0]
    }


def _joined_rows(name: str, arrays: list[Array]) -> Array:
    """Return the rows of all arrays.

    Raises:
        BadInput: they have unlike shapes.
    """
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        first, second, *_ = sorted(shapes)
        raise BadInput(
            f"rows of this request have a {name!r} of unlike shapes, such as {first} "
            f"and {second}, which one tensor can't hold: send each in a request of its "
            "own, or as JSON's instances to /predict"
        )
    return np.concatenate(arrays)
