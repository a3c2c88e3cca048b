"""A job: one request's rows, and the one answer that they get."""

import threading
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Tensors
from app.errors import Abandoned, BadInput, Late

# Jobs with equal keys may share a batch: the signature's name, and each input's name,
# dtype and row shape.
Key = tuple[str, tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]]

# How long `wait` blocks after the deadline for the notification of an answer that came
# before it.
_NOTIFY_TIMEOUT_S = 1.0

# Wakes an event loop, or a thread of service.py. The thread that answers calls it once
# for all jobs of a batch that share it, so it must neither wait nor raise.
Wake = Callable[[Sequence["Job"]], None]


class Answer(NamedTuple):
    """A job's outputs and times.

    `queue_s` ends when the job's first row starts to run, `infer_s` when its last
    row has run, at `finished_at` on the monotonic clock; `batch_rows` is the largest
    batch that any of its rows ran in.
    """

    outputs: Tensors
    batch_rows: int
    queue_s: float
    infer_s: float
    finished_at: float

    def enqueued_at(self) -> float:
        """Return when the job was made, on the monotonic clock."""
        return self.finished_at - self.infer_s - self.queue_s


class Job:
    """One request's rows, waiting for exactly one answer.

    A request thread submits a job and blocks in `wait`. An event loop sets `wake`,
    submits the job, and calls `wait` when it is done. The batching thread takes the
    rows, in several slices when they exceed a batch, and sets the answer. Times are
    seconds on the monotonic clock.

    `notified` is held until the waiter is notified. It `was_refused` if it failed
    before it was in any queue. `traceparent` is W3C's name of its request's span, if
    the request is traced.
    """

    __slots__ = (
        "_batch_rows",
        "_claim",
        "_error",
        "_finished_at",
        "_parts",
        "_rows_left",
        "_started_at",
        "client",
        "deadline",
        "enqueued_at",
        "inputs",
        "is_disconnected",
        "key",
        "notified",
        "reserve_s",
        "rows",
        "signature_name",
        "taken",
        "traceparent",
        "wake",
        "was_refused",
    )

    def __init__(
        self,
        inputs: Tensors,
        deadline: float,
        is_disconnected: Callable[[], bool] = lambda: False,
        signature_name: str = DEFAULT_SIGNATURE,
        client: str = "",
        reserve_s: float = 0.0,
    ) -> None:
        """Wrap inputs (rows, *shape).

        `is_disconnected` returns whether the client closed its connection. The queue
        is shared fairly between jobs of different `client`s. The rows have to be run
        `reserve_s` before the deadline, which leaves time to write the response.
        """
        self.inputs = inputs
        self.client = client
        self.signature_name = signature_name
        self.rows = self._rows_left = len(next(iter(inputs.values())))
        specs = [(name, each.dtype, each.shape[1:]) for name, each in inputs.items()]
        self.key: Key = (signature_name, tuple(specs))
        self.deadline = deadline
        self.reserve_s = reserve_s
        self.is_disconnected = is_disconnected
        self.enqueued_at = time.monotonic()
        self.was_refused = False
        # Rows already in a batch; only the thread that takes rows uses it.
        self.taken = 0
        # Outputs, each with the place of its first row among the job's rows.
        self._parts: list[tuple[int, Tensors]] = []
        self._error: Exception | None = None
        self._batch_rows = 0
        self._started_at = self._finished_at = 0.0
        self.wake: Wake | None = None
        self.traceparent: str | None = None
        # Acquired by the first thread that answers, so that no second answer follows.
        self._claim = threading.Lock()
        # A lock is the cheapest thing to wait on.
        self.notified = threading.Lock()
        self.notified.acquire()

    def wait(self) -> Answer:
        """Block until the answer or the deadline.

        Raises:
            Late: the deadline passed first; rows that do not run yet never will.
            Exception: the job's own error.
        """
        left_s = self.deadline - time.monotonic()
        if not self.notified.acquire(timeout=max(left_s, 0)):
            if self._claim.acquire(False):
                raise Late("no answer was ready before the request's deadline")
            # Another thread has set the answer and is about to notify.
            self.notified.acquire(timeout=_NOTIFY_TIMEOUT_S)
        if self._error is not None:
            # A batch's jobs share one error object; each raises it afresh.
            raise self._error.with_traceback(None)
        infer_s = self._finished_at - self._started_at
        outputs, batch_rows = _concatenated(self._parts), self._batch_rows
        return Answer(outputs, batch_rows, self.queue_s(), infer_s, self._finished_at)

    def queue_s(self) -> float:
        """Return seconds from arrival until the first row ran, or until now."""
        return (self._started_at or time.monotonic()) - self.enqueued_at

    def is_done(self) -> bool:
        """Return whether the waiter was notified, so that `wait` does not block."""
        return not self.notified.locked()

    def is_answered(self) -> bool:
        """Return whether a result or an error is set, or is being set."""
        return self._claim.locked()

    def start(self, now: float) -> None:
        """Set the start time, unless other rows of the job have run before."""
        self._started_at = self._started_at or now

    def add(self, start: int, outputs: Tensors, batch_rows: int, now: float) -> bool:
        """Add the outputs of the rows from `start` on, which ran in `batch_rows` rows.

        Return whether they complete the answer; the caller must then call `notify`.
        """
        self._batch_rows = max(self._batch_rows, batch_rows)
        self._parts.append((start, outputs))
        self._rows_left -= len(next(iter(outputs.values())))
        if self._rows_left or not self._claim.acquire(False):
            return False
        self._finished_at = now
        return True

    def fail(self, error: Exception) -> None:
        """Answer with an error and notify, unless the job has an answer."""
        if self._claim.acquire(False):
            self._error = error
            notify([self])

    def drop_if_dead(self, now: float) -> bool:
        """Fail a job that is late or whose client disconnected.

        Return whether the job has an answer, so that its rows must not run.
        """
        if self._claim.locked():
            return True
        if self.deadline <= now:
            self.fail(Late("the request's deadline passed before its rows were run"))
        elif self.is_disconnected():
            self.fail(Abandoned("the client closed the connection"))
        return self._claim.locked()


def notify(jobs: Sequence[Job]) -> None:
    """Notify the waiters of answered jobs; wake each event loop once for all its jobs.

    Call it once for each job, with all jobs of a batch at a time.
    """
    by_wake: dict[Wake, list[Job]] = {}
    for job in jobs:
        job.notified.release()
        if job.wake is not None:
            by_wake.setdefault(job.wake, []).append(job)
    for wake, done in by_wake.items():
        wake(done)


def joined(answers: Sequence[Answer], outputs: Tensors) -> Answer:
    """Return one answer with these outputs for several jobs of one request."""
    began_at = min(each.enqueued_at() for each in answers)
    started_at = min(each.finished_at - each.infer_s for each in answers)
    finished_at = max(each.finished_at for each in answers)
    times = started_at - began_at, finished_at - started_at, finished_at
    return Answer(outputs, max(each.batch_rows for each in answers), *times)


def _concatenated(parts: list[tuple[int, Tensors]]) -> Tensors:
    if len(parts) == 1:
        return parts[0][1]
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
