"""A job: one request's rows, from the request thread to the batch and back."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import Abandoned, Late

# Rows may share a batch when their keys are equal: the signature's name, and each
# input's name, dtype and row shape.
Key = tuple[str, tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]]

# How long it may take to tell a job whose answer is there.
_TOLD_WITHIN_S = 1.0

# Tells whoever waits for these answered jobs in no thread of their own; called with all
# jobs of a batch that have the same, by the thread that answers them.
Wake = Callable[[Sequence["Job"]], None]


class Answer(NamedTuple):
    """What a job gets back.

    `queue_s` ends when the job's first row starts to run, `infer_s` when its last
    row has run, at `finished_at` on the monotonic clock; `batch_rows` is the largest
    batch that any of its rows ran in.
    """

    outputs: Tensors
    batch_rows: int
    queue_s: float
    infer_s: float
    finished_at: float


class Job:
    """One request's rows, waiting for exactly one answer.

    Who makes it submits it and waits: a request thread in `wait`, an event loop until
    `wake` is called, and then there. The batching thread takes its rows, in pieces
    when they outnumber a batch, and fills in the answer. Times are seconds on the
    monotonic clock.
    """

    __slots__ = (
        "_answered",
        "_batch_rows",
        "_claim",
        "_error",
        "_finished_at",
        "_parts",
        "_started_at",
        "client",
        "deadline",
        "enqueued_at",
        "inputs",
        "is_disconnected",
        "key",
        "reserve_s",
        "rows",
        "signature_name",
        "taken",
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
        """Wrap inputs (rows, *shape); `is_disconnected` says that the client hung up.

        Jobs of the same `client` wait for one another; those of others, in turn. For
        the way back to it `reserve_s` are kept before the deadline.
        """
        self.inputs = inputs
        self.client = client
        self.signature_name = signature_name
        self.rows = len(next(iter(inputs.values())))
        specs = [(name, each.dtype, each.shape[1:]) for name, each in inputs.items()]
        self.key: Key = (signature_name, tuple(specs))
        self.deadline = deadline
        self.reserve_s = reserve_s
        self.is_disconnected = is_disconnected
        self.enqueued_at = time.monotonic()
        # Whether it failed without ever having stood in a queue.
        self.was_refused = False
        # Rows already handed to a batch; belongs to whoever takes.
        self.taken = 0
        self._parts: dict[int, Tensors] = {}  # by their first rows
        self._error: Exception | None = None
        self._batch_rows = 0
        self._started_at = self._finished_at = 0.0
        # What to call, where no thread is in `wait`.
        self.wake: Wake | None = None
        # Taken by the first who answers, so that no second answer can follow.
        self._claim = threading.Lock()
        # Held until the answer is there: the lightest thing to wait on.
        self._answered = threading.Lock()
        self._answered.acquire()

    def wait(self) -> Answer:
        """Block the thread until the answer, at most until the deadline.

        Raises:
            Late: the deadline passed first; rows that don't run yet never will.
            Exception: the job's own error.
        """
        left_s = self.deadline - time.monotonic()
        if not self._answered.acquire(timeout=max(left_s, 0)):
            if self._claim.acquire(blocking=False):
                raise Late("no answer was ready before the request's deadline")
            # It is there, and about to be told.
            self._answered.acquire(timeout=_TOLD_WITHIN_S)
        if self._error is not None:
            # A batch's jobs share one error object; each raises it afresh.
            raise self._error.with_traceback(None)
        return Answer(
            outputs=_joined(self._parts),
            batch_rows=self._batch_rows,
            queue_s=self.queue_s(),
            infer_s=self._finished_at - self._started_at,
            finished_at=self._finished_at,
        )

    def queue_s(self) -> float:
        """Seconds from arrival until the first row ran, or until now if none has."""
        return (self._started_at or time.monotonic()) - self.enqueued_at

    def is_done(self) -> bool:
        """Say whether `wait` would not block."""
        return not self._answered.locked()

    def is_answered(self) -> bool:
        """Say whether a result or an error is there, or about to be."""
        return self._claim.locked()

    def start(self, now: float) -> None:
        """Note that some of the rows start to run."""
        self._started_at = self._started_at or now

    def add(self, start: int, outputs: Tensors, batch_rows: int, now: float) -> bool:
        """Take the outputs of the rows from `start` on, which ran in such a batch.

        Says whether these, the last ones, make the answer; `tell` has to follow then.
        """
        self._batch_rows = max(self._batch_rows, batch_rows)
        self._parts[start] = outputs
        rows = sum([len(next(iter(part.values()))) for part in self._parts.values()])
        if rows == self.rows and self._claim.acquire(blocking=False):
            self._finished_at = now
            return True
        return False

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there is an answer already."""
        if self._claim.acquire(blocking=False):
            self._error = error
            notify([self])

    def drop_if_dead(self, now: float) -> bool:
        """Fail a job that is late or whose client has gone.

        Says whether its rows are not to be run, because it has its answer.
        """
        if self.deadline <= now:
            self.fail(Late("the request's deadline passed before its rows were run"))
        elif not self.is_answered() and self.is_disconnected():
            self.fail(Abandoned("the client closed the connection"))
        return self.is_answered()


def notify(jobs: Sequence[Job]) -> None:
    """Wake those who wait for answered jobs; an event loop once for all of its own."""
    by_wake: dict[Wake, list[Job]] = {}
    for job in jobs:
        job._answered.release()
        if job.wake is not None:
            by_wake.setdefault(job.wake, []).append(job)
    for wake, told in by_wake.items():
        wake(told)


def _joined(by_start: dict[int, Tensors]) -> Tensors:
    if len(by_start) == 1:
        (whole,) = by_start.values()
        return whole
    parts = [by_start[start] for start in sorted(by_start)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
