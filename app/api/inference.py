"""The request path of every route that predicts: decode, submit, wait, encode.

Protocols differ only in how they read a body and write a response; servers differ only
in how an Exchange waits.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from app.api.body import unpack
from app.api.environ import fair_queueing_key
from app.api.exchange import Exchange, HttpResponse
from app.api.groups import answered_in_groups
from app.api.recording.recording import Recording, sampled
from app.api.response_overhead import ResponseOverhead
from app.batching.interfaces import Runner
from app.batching.job import Answer, Job
from app.codec.fit import check_narrower
from app.codec.pictures import images
from app.codec.rows import UnevenRows
from app.codec.uneven import Uneven
from app.engines.base import Tensors
from app.errors import Late
from app.repository.catalog import Catalog
from app.repository.recorded import NOTHING
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings import Settings

# Bodies and outputs above this size are decoded and encoded in a thread, so that they
# do not block the event loop.
_INLINE_BYTES = 64 << 10


class Decoded(Protocol):
    """What a codec makes of a body."""

    @property
    def signature_name(self) -> str:
        """The function of the model that is asked."""
        ...

    @property
    def inputs(self) -> Tensors | Uneven:
        """Rows (rows, *shape), all of one shape or not."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """The request's own limit, where the body says one."""
        ...


_Decoded = TypeVar("_Decoded", bound=Decoded)
_Decode = Callable[[Exchange, bytes, ServedModel], _Decoded]
_Encode = Callable[[Exchange, ServedModel, _Decoded, Tensors], HttpResponse]


class Inference:
    """Answers requests with the catalog's models."""

    def __init__(
        self, catalog: Catalog, settings: Settings, recording: Recording
    ) -> None:
        """Store the parts."""
        self._catalog = catalog
        self._recording = recording
        self._settings = settings
        self._overhead = ResponseOverhead()

    async def answer(
        self,
        exchange: Exchange,
        target: Target,
        decode: _Decode[_Decoded],
        encode: _Encode[_Decoded],
    ) -> HttpResponse:
        """Serve one request.

        Raises:
            BasketError: the request is wrong, or was not answered.
        """
        settings = self._settings
        limit_s = exchange.timeout_s(settings.request_timeout_ms)
        exchange.deadline = exchange.arrived_at + limit_s
        body = await exchange.body(settings.max_body_bytes)
        lease = self._catalog.lease(target)
        with lease as model:
            exchange.model = model
            exchange.recorded = sampled(lease.recorded)
            exchange.rollout = lease.rollout
            decoded = await self._decoded(decode, exchange, body, model)
            # The rows may take less than the body.
            del body
            answer = await self._answered(exchange, model.runner, decoded, limit_s)
            answered_at = exchange.answered_at = time.monotonic()
            exchange.answer = answer
            encoding = partial(encode, exchange, model, decoded, answer.outputs)
            if model.user_code is not None and model.writes_predictions:
                response = await exchange.offload(encoding, model.user_code.threads)
            elif encodes_inline(answer.outputs):
                response = encoding()
            else:
                response = await exchange.offload(encoding)
            encode_s = time.monotonic() - answered_at
            self._overhead.add(answered_at + encode_s - answer.finished_at)
        response.headers += _record(exchange, model, answer, encode_s)
        if exchange.recorded is not NOTHING:
            self._recording.record(exchange, model, decoded, answer, response.body)
        return response

    async def _decoded(
        self,
        decode: _Decode[_Decoded],
        exchange: Exchange,
        body: bytes,
        model: ServedModel,
    ) -> _Decoded:
        decoding = partial(self._decode, decode, exchange, body, model)
        try:
            if model.user_code is not None and model.reads_instances:
                return await exchange.offload(decoding, model.user_code.threads)
            if _decodes_inline(exchange, body, model):
                return decoding()
            return await exchange.offload(decoding)
        except UnevenRows:
            exchange.splits_rows = True
            return await exchange.offload(decoding)

    async def _answered(
        self, exchange: Exchange, runner: Runner, decoded: Decoded, limit_s: float
    ) -> Answer:
        inputs = decoded.inputs
        if isinstance(inputs, Uneven):
            make_job = partial(self._job, exchange, decoded, limit_s)
            return await answered_in_groups(exchange, runner, inputs, make_job)
        job = self._job(exchange, decoded, limit_s, inputs)
        exchange.rows = job.rows
        await _submit(exchange, runner, job)
        return await exchange.answered(job)

    def _decode(
        self,
        decode: _Decode[_Decoded],
        exchange: Exchange,
        body: bytes,
        model: ServedModel,
    ) -> _Decoded:
        limit_bytes, check = self._settings.max_body_bytes, exchange.check_awaited
        unpacked = unpack(exchange.environ, body, limit_bytes, check)
        if unpacked is not body:
            exchange.hold(len(body) + len(unpacked))
        decoded = decode(exchange, unpacked, model)
        is_large = len(unpacked) > _INLINE_BYTES
        if not model.has_narrower_inputs and not is_large:
            return decoded
        inputs = decoded.inputs
        groups = inputs.groups if isinstance(inputs, Uneven) else [inputs]
        if model.has_narrower_inputs:
            for group in groups:
                check_narrower(group, model.signatures[decoded.signature_name])
        if is_large:
            exchange.hold(_memory_of(groups, len(unpacked)))
        return decoded

    def _job(
        self, exchange: Exchange, decoded: Decoded, limit_s: float, inputs: Tensors
    ) -> Job:
        timeout_s = min(limit_s, decoded.timeout_s or limit_s)
        job = Job(
            inputs,
            exchange.arrived_at + timeout_s,
            exchange.is_gone(),
            decoded.signature_name,
            fair_queueing_key(exchange.environ),
            self._overhead.reserve_s(timeout_s),
        )
        job.wake = exchange.wake
        job.traceparent = exchange.traceparent
        return job


async def _submit(exchange: Exchange, runner: Runner, job: Job) -> None:
    """Submit the job; an unbatched model runs meanwhile."""
    if not runner.runs_in_submit:
        runner.submit(job)
        exchange.job = job
        return
    await exchange.offload(partial(runner.submit, job))
    exchange.job = job
    if time.monotonic() >= job.deadline:
        raise Late("no answer was ready before the request's deadline")


def _decodes_inline(exchange: Exchange, body: bytes, model: ServedModel) -> bool:
    """Return whether a body is small, and not compressed.

    A few bytes may unpack to many, or to a large picture, in JSON and forms too.
    """
    if len(body) > _INLINE_BYTES or "HTTP_CONTENT_ENCODING" in exchange.environ:
        return False
    config = model.config.image
    return config is None or images.is_cheap_to_decode(body, config)


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


def _record(
    exchange: Exchange, model: ServedModel, answer: Answer, encode_s: float
) -> list[tuple[str, str]]:
    """Record the time in each stage; return headers for it, the version and batch."""
    decode_s = answer.enqueued_at() - exchange.arrived_at
    queue_s, infer_s = answer.queue_s, answer.infer_s
    stages_s = {
        "decode": decode_s,
        "queue": queue_s,
        "infer": infer_s,
        "encode": encode_s,
    }
    exchange.stages_s = stages_s
    model.observer.request_went_through(stages_s)
    timing = (
        f"decode;dur={1000 * decode_s:.3f}, queue;dur={1000 * queue_s:.3f}, "
        f"infer;dur={1000 * infer_s:.3f}, encode;dur={1000 * encode_s:.3f}"
    )
    return [
        ("X-Model-Version", str(model.version)),
        ("X-Batch-Size", str(answer.batch_rows)),
        ("Server-Timing", timing),
    ]
