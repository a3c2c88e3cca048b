"""From a call to its reply: rights, lease, begin; then finish, and tell who listens.

`open`, `begin` and `finish` are plain functions. An event loop calls them for a small
call, and has a thread call the last two for a large one (loop_calls.py); under WSGI the
call's own thread calls all of `answer`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app import telemetry
from app.access.rights import Rights
from app.batching.job import Wake
from app.call import Call, Head, Reply, new_id
from app.codec.rows import UnevenRows
from app.error_replies import error_reply
from app.errors import Late, TooLarge
from app.protocols.protocol import Protocol
from app.recording.recording import sampled
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.serving.asks import Asks
from app.serving.response_overhead import MOST_RESERVED, ResponseOverhead

# Seconds for which equal heads are not checked again. A file of keys that has changed
# is seen by then, and a second later.
_ALLOWED_S = 0.5
_MS = 1000
_LINES = (
    "X-Model-Version: %d\r\nX-Batch-Size: %d\r\n"
    "Server-Timing: decode;dur=%.3f, queue;dur=%.3f, infer;dur=%.3f, encode;dur=%.3f"
    "\r\n%sX-Request-Id: %s\r\n"
)
_log = logging.getLogger(__name__)
_monotonic = time.monotonic


# Takes calls that have ended, those of a batch together. Any thread may call it; it
# neither waits nor raises.
Listener = Callable[[Sequence[Call]], None]


class Limits(NamedTuple):
    """The time that a call may take, and the size of its body."""

    request_timeout_ms: int
    max_body_bytes: int


class Predictor:
    """Answers calls with the catalog's models."""

    def __init__(
        self,
        catalog: Catalog,
        rights: Rights,
        protocols: Sequence[Protocol],
        listeners: Sequence[Listener],
        limits: Limits,
        *,
        begin_span: Callable[[Call], None] | None = None,
    ) -> None:
        """Store the parts.

        Listeners get all calls that predict. `begin_span` sets the span of a call whose
        trace is sampled.
        """
        self._catalog = catalog
        self._rights = rights
        self._protocols = protocols
        self._listeners = listeners
        self._begin_span = begin_span
        self._limit_ms = limits.request_timeout_ms
        self.request_timeout_s = limits.request_timeout_ms / _MS
        self.max_body_bytes = limits.max_body_bytes
        self._overhead = ResponseOverhead()

    def asks(self, head: Head) -> Asks:
        """Return what a head asks for; found once."""
        asks: Asks | None = head.asks
        if asks is None:
            head.asks = asks = self._new_asks(head)
            asks.find(head, self._protocols)
        return asks

    def direct(self, head: Head, protocol: Protocol | None, target: Target) -> None:
        """Set what a head asks for, where not the head but a message names it."""
        head.asks = asks = self._new_asks(head)
        asks.protocol = protocol
        asks.set_target(head, target)

    def _new_asks(self, head: Head) -> Asks:
        return Asks(head, self._limit_ms, self.max_body_bytes, self._rights.origins)

    def check(self, call: Call, body_bytes: int) -> None:
        """Check a call before its body is read, of which so many bytes are announced.

        Raises:
            BasketError: it has no right to be answered, its head is wrong, or its body
                is too large.
        """
        asks = self.asks(call.head)
        self._check_rights(call.head, call.peer.server, call.arrived_at)
        if asks.error is not None:
            raise asks.error.with_traceback(None)
        if body_bytes > self.max_body_bytes:
            raise self.too_large()

    def check_head(self, head: Head, address: str, now: float) -> None:
        """Check the rights of a call, which came in `now` at an address of the server.

        Those of equal heads are checked twice a second.

        Raises:
            BasketError: it has no right to be answered.
        """
        asks = head.asks
        if now >= asks.allowed_until or asks.allowed_at != address:
            self._check_rights(head, address, now)

    def _check_rights(self, head: Head, address: str, now: float) -> None:
        self._rights.check(head.headers, address)
        head.asks.allowed_at, head.asks.allowed_until = address, now + _ALLOWED_S

    def too_large(self) -> TooLarge:
        """Return the error for a body beyond the limit."""
        return TooLarge(f"the body is larger than {self.max_body_bytes} bytes")

    def open(self, call: Call) -> None:
        """Check a call, set its deadline, and lease the version that it asks for.

        Raises:
            BasketError: as `check`, or there is no such version.
        """
        if self._begin_span is not None:
            self._begin_span(call)
        asks = call.head.asks or self.asks(call.head)
        is_allowed = (
            call.arrived_at < asks.allowed_until
            and asks.allowed_at == call.peer.server
            and asks.error is None
            and len(call.body) <= self.max_body_bytes
        )
        if not is_allowed:
            self.check(call, len(call.body))
        timeout_s = asks.timeout_s
        if call.rim_timeout_s < timeout_s:
            timeout_s = max(call.rim_timeout_s, 0.0)
        call.deadline = call.arrived_at + timeout_s
        call.version, entry = self._catalog.take(asks.target)
        call.model = call.version.served
        if entry.rollout is not None:
            call.rollout = entry.rollout
        if entry.capture is not None:
            call.capture = sampled(entry.capture)

    def begin(self, call: Call, wake: Wake | None) -> None:
        """Decode the body, and make a job whose answer calls `wake`.

        None: a thread waits for the answer. The caller submits the job, which the
        model's runner may refuse.

        Raises:
            UnevenRows: rows have unlike shapes; another time they are split.
            BasketError: the body is wrong.
        """
        try:
            job = call.head.asks.protocol.begin(call)
        except UnevenRows:
            call.splits_rows = True
            raise
        job.owner, job.wake = call, wake
        job.reserve_s = reserve_s = self._overhead.reserve_s
        if reserve_s:
            most_s = MOST_RESERVED * (call.deadline - call.arrived_at)
            job.reserve_s = reserve_s if reserve_s < most_s else most_s
        job.traceparent = call.traceparent
        call.job = job

    def begin_any(self, call: Call, wake: Wake | None) -> None:
        """Begin, whatever shapes the rows have.

        Raises:
            BasketError: as `begin`.
        """
        try:
            self.begin(call, wake)
        except UnevenRows:
            self.begin(call, wake)

    def finish(self, call: Call) -> Reply:
        """Return the reply to a call whose job is answered.

        Raises:
            BasketError: the job's error, or the protocol can't write the outputs.
        """
        job, model = call.job, call.model
        outputs = job.result()
        began_at = _monotonic()
        reply: Reply = call.head.asks.protocol.finish(call, outputs)
        ended_at = _monotonic()
        enqueued_at, started_at = job.enqueued_at, job.started_at
        decode_s = enqueued_at - call.arrived_at
        queue_s = started_at - enqueued_at
        infer_s = job.finished_at - started_at
        encode_s = ended_at - began_at
        name = call.head.request_id or new_id()
        reply.lines += _LINES % (
            model.version,
            job.batch_rows,
            _MS * decode_s,
            _MS * queue_s,
            _MS * infer_s,
            _MS * encode_s,
            call.head.asks.lines,
            name,
        )
        # Else it was refused at its deadline, while a thread was here.
        if not call.status:
            call.answered_at, call.ended_at = began_at, ended_at
            call.stages_s = decode_s, queue_s, infer_s, encode_s
            call.request_id = name
            call.status, call.reply = reply.status, reply
        return reply

    def refuse(self, call: Call, error: BaseException) -> Reply:
        """Return the reply to a call that failed."""
        asks = self.asks(call.head)
        if asks.protocol is not None:
            error = asks.protocol.explain(asks.target, error)
            # For listeners, which get no other calls.
            call.error = error
        reply = error_reply(error, is_prediction=asks.protocol is not None)
        # Avoid a reference cycle: the traceback has the call and the job, which have
        # the error.
        error.__traceback__ = None
        call.ended_at, call.stages_s = _monotonic(), None
        call.request_id = name = call.head.request_id or new_id()
        reply.lines += f"{asks.lines}X-Request-Id: {name}\r\n"
        call.status, call.reply = reply.status, reply
        return reply

    def tell(self, calls: Sequence[Call]) -> None:
        """End calls that have their replies, those of a batch together: tell of them.

        Call it once for each call. Its lease ends.
        """
        last = calls[-1]
        if last.stages_s is not None:
            # The replies of a batch are made one after the other: the last one is late.
            self._overhead.add(last.ended_at - last.job.finished_at)
        for listener in self._listeners:
            try:
                listener(calls)
            except Exception:  # the calls' leases have to end
                _log.exception("calls that ended could not be recorded")
        self._catalog.give_back([call.version for call in calls if call.version])
        for call in calls:
            # A job knows its call: avoid a reference cycle.
            call.version = call.job = call.decoded = call.reply = call.error = None

    def answer(self, call: Call, read_body: Callable[[], bytes] | None = None) -> Reply:
        """Answer a call in this thread, which waits; read the body if it is to come."""
        try:
            if read_body is not None:
                # Before the body takes memory.
                self.check(call, 0)
                call.body = read_body()
            self.open(call)
            self.begin_any(call, None)
            runner = call.model.runner
            call.job.submit(runner)
            call.job.wait()
            if runner.runs_in_submit and _monotonic() >= call.job.deadline:
                raise Late("no answer was ready before the request's deadline")
            reply = self.finish(call)
        except BaseException as error:
            reply = self.refuse(call, error)
            # Such as Gunicorn's end of a worker: its lease ends all the same.
            if not isinstance(error, Exception):
                raise
        finally:
            self.tell((call,))
            telemetry.flush()
        return reply
