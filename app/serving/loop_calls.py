"""The calls that wait on one event loop, whichever rim they came in at.

What costs a system call or a switch of threads is done once for many: the jobs of one
round of the loop are submitted together, the batching thread wakes the loop once for
all jobs of a batch, and one sweep checks all deadlines.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from app import telemetry
from app.batching.job import Job, Wake
from app.call import Call, Reply
from app.codec.bounds import INLINE_BYTES
from app.codec.pictures import images
from app.codec.rows import UnevenRows
from app.errors import Abandoned, BadInput, BasketError, Late, TooSlow, Unavailable
from app.serving.large_calls import SMALL_BODY_BYTES, LargeCalls
from app.serving.predictor import Predictor
from app.settings.model_files import SERVICE_FILE

_log = logging.getLogger(__name__)
# A sweep comes at a deadline, or after so many seconds. A timer for each call would
# cost the loop more than a small model takes for a row.
_SWEEP_EVERY_S = 0.05
# Delay of a call's metrics. A write takes up to a millisecond, in which calls and the
# batching thread wait; 5 writes a second seldom delay one.
_FLUSH_AFTER_S = 0.2
# Methods of routes that read no body and wait for no model. They have threads of their
# own, so that health and metrics are answered while all others are busy.
READ_METHODS = ("GET", "HEAD", "OPTIONS")
_LATE = "no answer was ready before the request's deadline"
_LATE_IN_DECODING = "the request's deadline passed before its rows were decoded"
_LATE_IN_SERVICE = f"{SERVICE_FILE} did not return by the deadline"

# Answers a call that predicts nothing, in a thread.
Answer = Callable[[Call], Reply]


class LoopCalls:
    """Starts calls, and gives each its reply; a rim calls all methods on the loop."""

    def __init__(
        self,
        predictor: Predictor,
        answer: Answer,
        readers: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the parts and the running loop, whose executor has the other threads.

        `answer` answers calls that predict nothing; those that only read, in `readers`.
        Deadlines pass by the `clock`, which is the monotonic one but for tests.
        """
        self._clock = clock
        self._predictor = predictor
        self._answer = answer
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._large = LargeCalls(predictor.max_body_bytes, self._loop)
        # Calls without a reply, also those whose body is arriving.
        self._waiting: set[Call] = set()
        # Calls whose jobs are submitted at the end of this round of the loop.
        self._round: list[Call] = []
        # When the next sweep comes, on the monotonic clock; inf: nothing waits.
        self._sweep_at = math.inf
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        # Bound once, as jobs of a batch with the same `wake` share a wake-up.
        self._wake_loop = self._wake
        self._wake_service = self._finish_in_service

    # What a rim calls.

    def check(self, call: Call, body_bytes: int) -> bool:
        """Check a call whose body of so many bytes (0: not known) is still to come.

        Return whether the body is to be read; else the call has or gets its reply
        without it.
        """
        if call.head.method in READ_METHODS:
            # Health needs neither a key nor a body.
            self.start(call)
            return False
        call.is_reading = True
        try:
            # Flask checks other rights for its routes, but not before the body.
            self._predictor.check(call, body_bytes)
        except Exception as error:
            self.refuse(call, error)
            return False
        call.deadline = call.arrived_at + self._predictor.request_timeout_s
        self._waiting.add(call)
        self._sweep_by(call.deadline)
        return True

    def reads(self, call: Call, body_bytes: int) -> bool:
        """Count the bytes of a body of which so many have arrived.

        Return whether to read on; else the call has its reply.
        """
        if body_bytes > self._predictor.max_body_bytes:
            self.refuse(call, self._predictor.too_large())
            return False
        return body_bytes <= SMALL_BODY_BYTES or self.holds(call, body_bytes)

    def holds(self, call: Call, count: int) -> bool:
        """Count the bytes that a large call takes now; return whether it may.

        If not, it has its reply.
        """
        call.holder = self._large
        try:
            call.hold(count)
        except Unavailable as error:
            self.refuse(call, error)
            return False
        return True

    def start(self, call: Call) -> None:
        """Answer a call whose body is there, maybe at once."""
        predictor = self._predictor
        call.is_reading = False
        asks = call.head.asks or predictor.asks(call.head)
        try:
            if asks.protocol is not None:
                predictor.open(call)
                self._begin(call)
            else:
                call.deadline = math.inf
                is_read = call.head.method in READ_METHODS
                self._in_thread(self._answer, call, self._readers if is_read else None)
        except Exception as error:
            self.refuse(call, error)
            return
        self._waiting.add(call)
        if call.deadline < self._sweep_at:
            self._sweep_by(call.deadline)

    def refuse(self, call: Call, error: Exception) -> None:
        """Answer a call with an error."""
        self._end(call, self._predictor.refuse(call, error))

    def left(self, call: Call) -> None:
        """Note that a client has disconnected: its rows need not run."""
        call.is_gone = True
        if call.is_reading and not call.status:
            self.refuse(call, BadInput("the body can't be read: it is cut off"))
        # A thread may just set it.
        job = call.job
        if job is not None:
            job.abandon()

    # From the body to the queue.

    def _begin(self, call: Call) -> None:
        """Decode and submit here what is small, and all else in a thread."""
        model, asks = call.model, call.head.asks
        if asks.protocol.calls_service and model.reads_instances:
            call.holder = self._large
            self._in_service(self._begin_in_service, call)
            return
        # A few bytes may unpack to many, or to a large picture, in JSON and forms too.
        image = model.config.image
        is_quick = (
            len(call.body) <= INLINE_BYTES
            and call.filled_bytes <= INLINE_BYTES
            and asks.encoding is None
            and not model.runner.runs_in_submit
        )
        if is_quick and image is not None:
            call.small_jpeg = images.small_jpeg(call.body, image)
            is_quick = call.small_jpeg is not None
        if is_quick:
            try:
                self._predictor.begin(call, self._wake_loop)
            except UnevenRows:
                pass  # They take longer.
            else:
                self._round.append(call)
                if len(self._round) == 1:
                    self._loop.call_soon(self._submit_round)
                return
        call.holder = self._large
        self._in_thread(self._begin_in_thread, call)

    def _submit_round(self) -> None:
        """Submit the jobs of calls that came in one round of the loop.

        At its end: the batching thread would take Python's lock from the loop, and
        begin with the round's first row.
        """
        calls, self._round = self._round, []
        for call in calls:
            try:
                # It is no group: one whose rows have unlike shapes is never small.
                call.model.runner.submit(call.job)
            except Exception as error:
                call.job.was_refused = True
                self.refuse(call, error)

    def _begin_in_thread(self, call: Call) -> None:
        if call.filled_bytes > INLINE_BYTES:
            call.hold(2 * len(call.body) + call.filled_bytes)
        self._begin_and_submit(call, self._wake_loop)

    def _begin_in_service(self, call: Call) -> None:
        is_written = call.model.writes_predictions
        wake = self._wake_service if is_written else self._wake_loop
        self._begin_and_submit(call, wake)

    def _begin_and_submit(self, call: Call, wake: Wake) -> None:
        self._predictor.begin_any(call, wake)
        # The client may have left meanwhile, when there was no job to abandon; and the
        # user's code may return after the call's end.
        try:
            call.check_awaited()
        except BasketError:
            job = call.job
            if call.status and job is not None:
                # Its end was before it had the job: avoid reference cycles.
                call.job = job.wake = None
                job.fail(Abandoned("nobody waits for the rows"))
            raise
        if call.in_service and call.model.runner.runs_in_submit:
            self._loop.call_soon_threadsafe(self._in_thread, _submit, call)
        else:
            _submit(call)

    # From the batch to the reply.

    def _wake(self, jobs: Sequence[Job]) -> None:
        """Give the jobs of a batch their replies, on the loop; any thread may call."""
        try:
            self._loop.call_soon_threadsafe(self._answered, jobs)
        except RuntimeError:
            return  # The loop is closed, with all its calls.

    def _answered(self, jobs: Sequence[Job]) -> None:
        predictor = self._predictor
        ended = []
        for job in jobs:
            call = job.owner
            if call not in self._waiting:
                continue
            try:
                model = call.model
                if job.error is None:
                    protocol = call.head.asks.protocol
                    if protocol.calls_service and model.writes_predictions:
                        self._in_service(predictor.finish, call)
                        continue
                    if job.rows > model.inline_rows and not _is_small(job):
                        self._in_thread(predictor.finish, call)
                        continue
                reply = predictor.finish(call)
            except Exception as error:
                reply = predictor.refuse(call, error)
            ended.append(call)
            self._reply(call, reply)
        if ended:
            self._tell(ended)

    def _finish_in_service(self, jobs: Sequence[Job]) -> None:
        """Have idle threads of service.py finish the calls of jobs of a batch.

        There is no way over the loop between, and the batching thread, which may be
        here, does not wait for a new thread.
        """
        left = []
        for job in jobs:
            finish = partial(self._run, self._predictor.finish, job.owner)
            threads = job.owner.model.user_code.threads
            if job.error is not None or not threads.submit_if_idle(finish):
                left.append(job)
        if left:
            self._wake(left)

    def _reply(self, call: Call, reply: Reply) -> None:
        self._waiting.discard(call)
        if call.holder is not None:
            self._large.release(call)
        try:
            call.reply_to(call, reply)
        except Exception:  # others of its batch wait for theirs
            _log.exception("a reply could not be written")

    def _end(self, call: Call, reply: Reply) -> None:
        self._reply(call, reply)
        if call.head.asks.protocol is not None:
            self._tell((call,))

    def _tell(self, calls: Sequence[Call]) -> None:
        """Tell listeners, and have what they recorded of many calls written soon."""
        self._predictor.tell(calls)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_later(_FLUSH_AFTER_S, self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        telemetry.flush()

    # Threads. A function's result is the reply; None: that comes later.

    def _in_thread(
        self,
        function: Callable[[Call], Reply | None],
        call: Call,
        threads: Executor | None = None,
    ) -> None:
        """Call a function in one of these threads, or of the loop's own."""
        self._loop.run_in_executor(threads, self._run, function, call)

    def _in_service(self, function: Callable[[Call], Reply | None], call: Call) -> None:
        """Call a function in a thread of the model's service.py."""
        call.in_service = True
        call.model.user_code.threads.submit(partial(self._run, function, call))

    def _run(self, function: Callable[[Call], Reply | None], call: Call) -> None:
        if call.status:
            return  # It has ended while it waited for a thread.
        reply = error = None
        try:
            reply = function(call)
        except BaseException as failure:  # the user's code may raise anything
            error = failure
        if reply is not None or error is not None:
            # The loop may be closed, with all its calls.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._settle, call, reply, error)
        # Avoid a reference cycle: the traceback holds this frame.
        del error

    def _settle(
        self, call: Call, reply: Reply | None, error: BaseException | None
    ) -> None:
        """Give a call what a thread has made, unless it has ended."""
        if call in self._waiting:
            if error is not None:
                reply = self._predictor.refuse(call, error)
            assert reply is not None  # one of both is there
            self._end(call, reply)

    # Deadlines and metrics.

    def _sweep_by(self, deadline: float) -> None:
        """Have a sweep at a deadline, or within 50 ms."""
        if deadline >= self._sweep_at:
            return
        now = self._clock()
        self._sweep_at = min(deadline, now + _SWEEP_EVERY_S)
        if self._sweep_timer is not None:
            # Each sweep schedules the next: two timers would never be one again.
            self._sweep_timer.cancel()
        # The loop may count whole milliseconds.
        left_s = max(self._sweep_at - now, 0) + 0.001
        self._sweep_timer = self._loop.call_later(left_s, self._sweep)

    def _sweep(self) -> None:
        """Answer calls that are past their deadline."""
        self._sweep_at = math.inf
        now = self._clock()
        for call in [each for each in self._waiting if each.deadline <= now]:
            self._end_late(call)
        earliest = min((call.deadline for call in self._waiting), default=math.inf)
        self._sweep_by(earliest)

    def _end_late(self, call: Call) -> None:
        job = call.job
        if call.is_reading:
            self.refuse(call, TooSlow("the body has not come in time"))
        elif job is not None and not job.is_answered():
            job.fail(Late(_LATE))
        elif call.in_service:
            self.refuse(call, Late(_LATE_IN_SERVICE))
        elif job is None:
            self.refuse(call, Late(_LATE_IN_DECODING))
        else:
            # It is being encoded, which takes some milliseconds.
            call.deadline = math.inf


def _submit(call: Call) -> None:
    call.job.submit(call.model.runner)


def _is_small(job: Job) -> bool:
    """Return whether a job's outputs are small enough to be encoded on the loop."""
    size = 0
    for array in job.result().values():
        # The size of texts is not known.
        if array.dtype.hasobject:
            return False
        size += array.nbytes
    return size <= INLINE_BYTES
