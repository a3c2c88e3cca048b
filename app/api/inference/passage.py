"""One request's way through a model: decode, submit, encode.

Each step may run on the event loop or in a thread; `inference.py` decides where.
"""

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from app.api.environ import fair_queueing_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.response_overhead import ResponseOverhead
from app.batching.job import Job, Wake
from app.codec import rows
from app.codec.compression import decompress
from app.codec.fit import check_narrower
from app.codec.pictures import images
from app.codec.uneven import Uneven
from app.codec.v2 import tensors
from app.engines.base import Tensors
from app.repository.served import ServedModel

# Bodies and outputs above this size are decoded and encoded in a thread, so that they
# do not block the event loop.
_INLINE_BYTES = 64 << 10

# What a protocol's decoder makes of a body: the signature that is asked, rows, all of
# one shape or not, and the request's own timeout, where the body has one.
DecodedT = TypeVar("DecodedT", bound=rows.Request | tensors.Request)
Decode = Callable[[Exchange, bytes, ServedModel], DecodedT]
Encode = Callable[[Exchange, ServedModel, DecodedT, Tensors], HttpResponse]
# How a protocol reads a body, and writes a response.
Codec = tuple[Decode[DecodedT], Encode[DecodedT]]


class Passage(Generic[DecodedT]):
    """One request's way through a leased model.

    `decoded` is what the codec made of the body, once `decode` has returned.
    """

    __slots__ = (
        "_body",
        "_decode",
        "_encode",
        "_limit_bytes",
        "_overhead",
        "decoded",
        "exchange",
        "model",
    )
    decoded: DecodedT

    def __init__(
        self,
        exchange: Exchange,
        model: ServedModel,
        codec: Codec[DecodedT],
        body: bytes,
        limit_bytes: int,
        overhead: ResponseOverhead,
    ) -> None:
        """Store the parts; an unpacked body may have `limit_bytes`."""
        self.exchange = exchange
        self.model = model
        self._decode, self._encode = codec
        self._body = body
        self._limit_bytes = limit_bytes
        self._overhead = overhead

    @property
    def runs_in_submit(self) -> bool:
        """Whether the model runs when its job is submitted."""
        return self.model.runner.runs_in_submit

    def decodes_inline(self) -> bool:
        """Return whether the body is small, and not compressed.

        A few bytes may unpack to many, or to a large picture, in JSON and forms too.
        """
        body, environ = self._body, self.exchange.environ
        if max(len(body), self.exchange.filled_bytes) > _INLINE_BYTES:
            return False
        if "HTTP_CONTENT_ENCODING" in environ:
            return False
        config = self.model.config.image
        return config is None or images.is_cheap_to_decode(body, config)

    def decode(self) -> None:
        """Make rows of the body, and release it: they may take less.

        Raises:
            UnevenRows: they have unlike shapes; decoding again splits them.
            BasketError: the body is wrong.
        """
        exchange, body = self.exchange, self._body
        encoding = exchange.environ.get("HTTP_CONTENT_ENCODING", "")
        unpacked = decompress(body, encoding, self._limit_bytes, self._unpacking)
        size = len(unpacked) + exchange.filled_bytes
        if exchange.filled_bytes > _INLINE_BYTES:
            exchange.hold(len(body) + size)
        try:
            self.decoded = decoded = self._decode(exchange, unpacked, self.model)
        except rows.UnevenRows:
            exchange.splits_rows = True
            raise
        self._body = b""
        is_large = size > _INLINE_BYTES
        if not self.model.has_narrower_inputs and not is_large:
            return
        inputs = decoded.inputs
        groups = inputs.groups if isinstance(inputs, Uneven) else [inputs]
        if self.model.has_narrower_inputs:
            for group in groups:
                check_narrower(group, self.model.signatures[decoded.signature_name])
        if is_large:
            exchange.hold(_memory_of(groups, size))

    def _unpacking(self, size: int) -> None:
        """Count the bytes so far, before many requests have unpacked all of theirs."""
        self.exchange.check_awaited()
        self.exchange.hold(len(self._body) + size)

    def decode_any(self) -> None:
        """Decode, whatever shapes the rows have.

        Raises:
            BasketError: the body is wrong.
        """
        try:
            self.decode()
        except rows.UnevenRows:
            self.decode()

    def job(self, inputs: Tensors) -> Job:
        """Return the job of these rows."""
        exchange, decoded = self.exchange, self.decoded
        limit_s = exchange.deadline - exchange.arrived_at
        timeout_s = min(limit_s, decoded.timeout_s or limit_s)
        job = Job(
            inputs,
            exchange.arrived_at + timeout_s,
            decoded.signature_name,
            fair_queueing_key(exchange.environ),
        )
        job.reserve_s = self._overhead.reserve_s(timeout_s)
        job.wake = exchange.wake
        job.traceparent = exchange.traceparent
        exchange.jobs.append(job)
        # Checked afterwards: else a client that goes meanwhile could be missed.
        if exchange.is_gone():
            job.abandon()
        return job

    def enter(self, wake: Wake | None) -> Job | None:
        """Decode, and submit a job whose answer calls `wake`.

        Return the job; None, and none is submitted, if the rows have unlike shapes.

        Raises:
            BasketError: the body is wrong, or the job is refused.
        """
        self.decode_any()
        inputs = self.decoded.inputs
        if isinstance(inputs, Uneven):
            return None
        job = self.job(inputs)
        job.wake = wake
        exchange = self.exchange
        # The user's code may return after the request's end.
        exchange.check_awaited()
        exchange.rows = job.rows
        # At once, since the answer may be encoded before `submit` returns.
        exchange.job = job
        try:
            self.model.runner.submit(job)
        except BaseException:
            exchange.job = None
            raise
        return job

    def leave(self, job: Job) -> HttpResponse:
        """Encode the answer to the job that `enter` submitted.

        Raises:
            BasketError: it was not answered.
        """
        if job.wake is None:
            job.wait()
        self.got(job)
        return self.encode()

    @property
    def answer(self) -> Job:
        """The answered job, once there is one."""
        answer = self.exchange.answer
        assert answer is not None
        return answer

    def got(self, answer: Job) -> None:
        """Note an answered job, and that its encoding begins now.

        Raises:
            BasketError: the job's own error.
        """
        answer.result()
        self.exchange.answered_at = time.monotonic()
        self.exchange.answer = answer

    def encode(self) -> HttpResponse:
        """Return the response with the answer's outputs.

        Raises:
            ModelFailed: the user's own code fails.
        """
        outputs = self.answer.result()
        return self._encode(self.exchange, self.model, self.decoded, outputs)


def _memory_of(groups: Sequence[Tensors], body_bytes: int) -> int:
    """Return the bytes of the inputs; strings take about as many as in the body."""
    arrays = [array for inputs in groups for array in inputs.values()]
    if any(array.dtype.hasobject for array in arrays):
        return body_bytes
    return sum(array.nbytes for array in arrays)


def encodes_inline(outputs: Tensors) -> bool:
    """Return whether outputs are small; the size of texts is not known."""
    size = 0
    for array in outputs.values():
        if array.dtype.hasobject:
            return False
        size += array.nbytes
    return size <= _INLINE_BYTES
