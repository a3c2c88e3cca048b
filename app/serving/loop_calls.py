"""The calls that wait on one event loop, whichever rim they came in at.

What costs a system call or a switch of threads is done once for many: the jobs of one
round of the loop are submitted together, the batching thread wakes the loop once for
all jobs of a batch, and one sweep checks all deadlines.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from app import telemetry
from app.batching.job import Job
from app.call import Call, Reply
from app.codec.bounds import INLINE_BYTES
from app.codec.pictures import images
from app.codec.rows import UnevenRows
from app.errors import Late, TooSlow
from app.serving.large_calls import SMALL_BODY_BYTES, LargeCalls
from app.serving.predictor import Predictor
from app.settings.model_files import SERVICE_FILE

# A sweep comes at a deadline, or after so many seconds. A timer for each call would
# cost the loop more than a small model takes for a row.
_SWEEP_EVERY_S = 0.05
# Delay of a call's metrics. A write takes up to a millisecond, in which calls and the
# batching thread wait; 5 writes a second seldom delay one.
_FLUSH_AFTER_S = 0.2
# Methods of routes that read no body and wait for no model. They have threads of their
# own, so that health and metrics are answered while all others are busy.
_READ_METHODS = ("GET", "HEAD", "OPTIONS")
_LATE = "no answer was ready before the request's deadline"
_LATE_IN_DECODING = "the request's deadline passed before its rows were decoded"
_LATE_IN_SERVICE = f"{SERVICE_FILE} did not return by the deadline"

# Answers a call that predicts nothing, in a thread.
Answer = Callable[[Call], Reply]


class LoopCalls:
    """Starts calls, and gives each its reply; a rim calls all methods on the loop."""

    def __init__(self, predictor: Predictor, answer: Answer, readers: Executor) -> None:
        """Store the parts and the running loop, whose executor has the other threads.

        `answer` answers calls that predict nothing; those that only read, in `readers`.
        """
        self._predictor = predictor
        self._answer = answer
        self._readers = readers
        self._loop = asyncio.get_running_loop()
        self._large = LargeCalls(predictor.max_body_bytes, self._loop)
        # Calls whose body is arriving, and calls that wait for their reply.
        self._reading: set[Call] = set()
        self._waiting: set[Call] = set()
        # Calls whose jobs are submitted at the end of this round of the loop.
        self._round: list[Call] = []
        # When the next sweep comes, on the monotonic clock; inf: nothing waits.
        self._sweep_at = math.inf
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        # Bound once, as jobs of a batch with the same `wake` share a wake-up.
        self._wake_loop = self._wake
        self._wake_service = self._finish_if_idle

    # What a rim calls.

    def check(self, call: Call, body_bytes: int) -> bool:
        """Check a call whose body of so many bytes (0: not known) is still to come.

        Return whether the body is to be read; else the call has its reply.
        """
        self._reading.add(call)
        try:
            # Flask checks other rights for its routes, but not before the body.
            self._predictor.check(call, body_bytes)
        except Exception as error:
            self.refuse(call, error)
            return False
        self._sweep_by(call.arrived_at + self._predictor.request_timeout_s)
        return True

    def reads(self, call: Call, body_bytes: int, held_bytes: int = 0) -> bool:
        """Count the bytes of a body of which so many have arrived.

        It takes `held_bytes` of memory where those are more. Return whether to read on;
        else the call has its reply.
        """
        try:
            if body_bytes > self._predictor.max_body_bytes:
                raise self._predictor.too_large()
            held_bytes = max(held_bytes, body_bytes)
            if held_bytes > SMALL_BODY_BYTES:
                call.holder = self._large
                call.hold(held_bytes)
        except Exception as error:
            self.refuse(call, error)
            return False
        return True

    def start(self, call: Call) -> None:
        """Answer a call whose body is there, maybe at once."""
        predictor = self._predictor
        self._reading.discard(call)
        asks = call.head.asks or predictor.asks(call.head)
        if asks.protocol is None:
            self._waiting.add(call)
            is_read = call.head.method in _READ_METHODS
            threads = self._readers if is_read else None
            self._in_thread(threads, self._answer, call)
            return
        try:
            predictor.open(call)
            self._begin(call)
        except Exception as error:
            self.refuse(call, error)
            return
        self._waiting.add(call)
        if call.deadline < self._sweep_at:
            self._sweep_by(call.deadline)

    def refuse(self, call: Call, error: Exception) -> None:
        """Answer a call with an error."""
        self._reading.discard(call)
        self._end(call, self._predictor.refuse(call, error))

    def left(self, call: Call) -> None:
        """Note that a client has disconnected: its rows need not run."""
        call.is_gone = True
        self._reading.discard(call)
        if call.job is not None:
            call.job.abandon()

    # From the body to the queue.

    def _begin(self, call: Call) -> None:
        """Decode and submit here what is small, and all else in a thread."""
        model = call.model
        if call.head.asks.protocol.calls_service and model.reads_instances:
            call.holder = self._large
            self._in_service(call, self._begin_in_service)
            return
        if self._decodes_here(call):
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
        self._in_thread(None, self._begin_in_thread, call)

    def _decodes_here(self, call: Call) -> bool:
        """Return whether decoding takes less than a millisecond, and runs no model.

        A few bytes may unpack to many, or to a large picture, in JSON and forms too.
        """
        model, body = call.model, call.body
        if len(body) > INLINE_BYTES or call.head.asks.encoding is not None:
            return False
        if call.filled_bytes > INLINE_BYTES or model.runner.runs_in_submit:
            return False
        config = model.config.image
        if config is None:
            return True
        call.small_jpeg = images.small_jpeg(body, config)
        return call.small_jpeg is not None

    def _submit_round(self) -> None:
        """Submit the jobs of calls that came in one round of the loop.

        At its end: the batching thread would take Python's lock from the loop, and
        begin with the round's first row.
        """
        calls, self._round = self._round, []
        for call in calls:
            try:
                call.job.submit(call.model.runner)
            except Exception as error:
                self.refuse(call, error)

    def _begin_in_thread(self, call: Call) -> None:
        if call.filled_bytes > INLINE_BYTES:
            call.hold(2 * len(call.body) + call.filled_bytes)
        self._predictor.begin_any(call, self._wake_loop)
        call.job.submit(call.model.runner)

    def _begin_in_service(self, call: Call) -> None:
        model = call.model
        wake = self._wake_service if model.writes_predictions else self._wake_loop
        self._predictor.begin_any(call, wake)
        # The user's code may return after the call's end.
        call.check_awaited()
        if not model.runner.runs_in_submit:
            call.job.submit(model.runner)
            return
        submit = partial(self._in_thread, None, _submit, call)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(submit)

    # From the batch to the reply.

    def _wake(self, jobs: Sequence[Job]) -> None:
        """Give the jobs of a batch their replies, on the loop; any thread may call."""
        try:
            self._loop.call_soon_threadsafe(self._answered, jobs)
        except RuntimeError:
            return  # The loop is closed, with all its calls.

    def _answered(self, jobs: Sequence[Job]) -> None:
        predictor, waiting = self._predictor, self._waiting
        ended = []
        for job in jobs:
            call = job.owner
            if call not in waiting:
                continue
            if job.error is None:
                if call.head.asks.protocol.calls_service and (
                    call.model.writes_predictions
                ):
                    self._in_service(call, self._finish_in_service)
                    continue
                if not _encodes_here(call, job):
                    self._in_thread(None, predictor.finish, call)
                    continue
            waiting.discard(call)
            try:
                reply = predictor.finish(call)
            except Exception as error:
                reply = predictor.refuse(call, error)
            if call.held_bytes:
                self._large.release(call)
            call.reply_to(call, reply)
            ended.append(call)
        if ended:
            predictor.tell(ended)
            if not self._is_flushing:
                self._flush_soon()

    def _finish_if_idle(self, jobs: Sequence[Job]) -> None:
        """Have idle threads of service.py finish the calls of jobs of a batch.

        There is no way over the loop between, and the batching thread, which may be
        here, does not wait for a new thread.
        """
        left = []
        for job in jobs:
            finish = partial(self._run_in_service, self._finish_in_service, job.owner)
            threads = job.owner.model.user_code.threads
            if job.error is not None or not threads.submit_if_idle(finish):
                left.append(job)
        if left:
            self._wake(left)

    def _finish_in_service(self, call: Call) -> Reply:
        return self._predictor.finish(call)

    def _end(self, call: Call, reply: Reply) -> None:
        """Give a call its reply."""
        self._waiting.discard(call)
        if call.most_held_bytes:
            self._large.release(call)
        call.reply_to(call, reply)
        if call.head.asks.protocol is not None:
            self._predictor.tell((call,))
            if not self._is_flushing:
                self._flush_soon()

    # Threads.

    def _in_thread(
        self, threads: Executor | None, function: Callable[[Call], Any], call: Call
    ) -> None:
        """Call a function, whose result is the reply; None: that comes later."""
        future = self._loop.run_in_executor(threads, function, call)
        future.add_done_callback(partial(self._thread_done, call))

    def _thread_done(self, call: Call, future: "asyncio.Future[Reply | None]") -> None:
        error = None if future.cancelled() else future.exception()
        result = None if error is not None or future.cancelled() else future.result()
        self._settle(call, result, error)

    def _in_service(self, call: Call, function: Callable[[Call], Any]) -> None:
        """Call a function in the threads of the model's service.py, as `_in_thread`."""
        call.in_service = True
        run = partial(self._run_in_service, function, call)
        call.model.user_code.threads.submit(run)

    def _run_in_service(self, function: Callable[[Call], Any], call: Call) -> None:
        if call.status:
            return  # It has ended while it waited for a thread.
        result = error = None
        try:
            result = function(call)
        except BaseException as failure:  # the user's code may raise anything
            error = failure
        if result is None and error is None:
            return
        # The loop may be closed, with all its calls.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, call, result, error)
        # Avoid a reference cycle: the traceback holds this frame.
        del error

    def _settle(
        self, call: Call, reply: Reply | None, error: BaseException | None
    ) -> None:
        """Give a call the reply or error of a thread, unless it has ended."""
        if call not in self._waiting:
            return
        if error is not None:
            reply = self._predictor.refuse(call, error)
        if reply is not None:
            self._end(call, reply)

    # Deadlines and metrics.

    def _sweep_by(self, deadline: float) -> None:
        """Have a sweep at a deadline, or within 50 ms."""
        if deadline >= self._sweep_at:
            return
        now = time.monotonic()
        self._sweep_at = min(deadline, now + _SWEEP_EVERY_S)
        if self._sweep_timer is not None:
            # Each sweep schedules the next: two timers would never be one again.
            self._sweep_timer.cancel()
        # The loop may count whole milliseconds.
        left_s = max(self._sweep_at - now, 0) + 0.001
        self._sweep_timer = self._loop.call_later(left_s, self._sweep)

    def _sweep(self) -> None:
        """Answer calls that are past their deadline, or whose body is."""
        self._sweep_at = math.inf
        now = time.monotonic()
        limit_s = self._predictor.request_timeout_s
        for call in [each for each in self._waiting if each.deadline <= now]:
            self._end_late(call)
        for call in [
            each for each in self._reading if each.arrived_at + limit_s <= now
        ]:
            self.refuse(call, TooSlow("the body has not come in time"))
        deadlines = [call.deadline for call in self._waiting]
        deadlines += [call.arrived_at + limit_s for call in self._reading]
        earliest = min(deadlines, default=math.inf)
        if earliest < math.inf:
            self._sweep_by(earliest)

    def _end_late(self, call: Call) -> None:
        job = call.job
        if job is not None and not job.is_answered():
            job.fail(Late(_LATE))
        elif call.in_service:
            self.refuse(call, Late(_LATE_IN_SERVICE))
        elif job is None:
            self.refuse(call, Late(_LATE_IN_DECODING))
        else:
            # It is being encoded, which takes some milliseconds.
            call.deadline = math.inf

    def _flush_soon(self) -> None:
        """Write the recorded metrics soon, those of many calls together."""
        self._is_flushing = True
        self._loop.call_later(_FLUSH_AFTER_S, self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        telemetry.flush()


def _submit(call: Call) -> None:
    """Run a job whose model runs when it is submitted."""
    call.job.submit(call.model.runner)


def _encodes_here(call: Call, job: Job) -> bool:
    """Return whether a job's outputs are surely small, or small."""
    if job.rows <= call.model.inline_rows:
        return True
    size = 0
    for array in job.result().values():
        # The size of texts is not known.
        if array.dtype.hasobject:
            return False
        size += array.nbytes
    return size <= INLINE_BYTES
