"""The request path of every route that predicts: decode, submit, wait, encode.

Protocols differ only in how they read a body and write a response; servers differ only
in how an Exchange waits.
"""

import time
from contextlib import suppress
from functools import partial

from app.api.exchange import Exchange, HttpResponse
from app.api.inference.groups import answered_in_groups
from app.api.inference.passage import Codec, DecodedT, Passage, encodes_inline
from app.api.inference.response_overhead import ResponseOverhead
from app.api.recording.recording import Recording, sampled
from app.batching.job import Job
from app.codec.rows import UnevenRows
from app.codec.uneven import Uneven
from app.errors import Late
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings import Settings


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
        codec: Codec[DecodedT],
        *,
        calls_service: bool = False,
    ) -> HttpResponse:
        """Serve one request.

        `calls_service`: the codec calls the functions of a model's service.py.

        Raises:
            BasketError: the request is wrong, or was not answered.
        """
        limit_s = exchange.timeout_s(self._settings.request_timeout_ms)
        exchange.deadline = exchange.arrived_at + limit_s
        limit_bytes = self._settings.max_body_bytes
        body = await exchange.body(limit_bytes)
        lease = self._catalog.lease(target)
        with lease as model:
            exchange.model = model
            exchange.capture = sampled(lease.capture)
            exchange.rollout = lease.rollout
            passage = Passage(exchange, model, codec, body, limit_bytes, self._overhead)
            # The passage releases it.
            del body
            response = await _through(passage, calls_service)
            encoded_at, answer = time.monotonic(), passage.answer
            self._overhead.add(encoded_at - answer.finished_at)
        encode_s = encoded_at - exchange.answered_at
        response.headers += _record(exchange, model, answer, encode_s)
        if exchange.capture is not None:
            decoded = passage.decoded
            self._recording.record(exchange, model, decoded, answer, response.body)
        return response


async def _through(passage: Passage[DecodedT], calls_service: bool) -> HttpResponse:
    """Return the model's response."""
    exchange = passage.exchange
    code = passage.model.user_code if calls_service else None
    reads = code is not None and code.reads_instances
    writes = code is not None and code.writes_predictions
    threads = code.threads if code is not None else None
    if threads is not None and reads and writes and not passage.runs_in_submit:
        response = await exchange.around(threads, passage.enter, passage.leave)
        # None: its rows have unlike shapes.
        if response is not None:
            return response
    elif reads:
        await exchange.offload(passage.decode_any, threads)
    else:
        await _decode(passage)
    await _answer(passage)
    if writes:
        return await exchange.offload(passage.encode, threads)
    if encodes_inline(passage.answer.result()):
        return passage.encode()
    return await exchange.offload(passage.encode)


async def _decode(passage: Passage[DecodedT]) -> None:
    """Decode; what may take long doesn't do so on an event loop."""
    if passage.decodes_inline():
        # Rows of unlike shapes take longer.
        with suppress(UnevenRows):
            passage.decode()
            return
    await passage.exchange.offload(passage.decode_any)


async def _answer(passage: Passage[DecodedT]) -> None:
    """Submit the rows, and wait for the answer; an unbatched model runs meanwhile."""
    exchange, runner = passage.exchange, passage.model.runner
    inputs = passage.decoded.inputs
    if isinstance(inputs, Uneven):
        passage.got(await answered_in_groups(exchange, runner, inputs, passage.job))
        return
    job = passage.job(inputs)
    exchange.rows = job.rows
    if passage.runs_in_submit:
        await exchange.offload(partial(runner.submit, job))
        exchange.job = job
        if time.monotonic() >= job.deadline:
            raise Late("no answer was ready before the request's deadline")
    else:
        runner.submit(job)
        exchange.job = job
    await exchange.answered(job)
    passage.got(job)


def _record(
    exchange: Exchange, model: ServedModel, answer: Job, encode_s: float
) -> list[tuple[str, str]]:
    """Record the time in each stage; return headers for it, the version and batch."""
    decode_s = answer.enqueued_at - exchange.arrived_at
    queue_s = answer.queue_s()
    infer_s = answer.finished_at - answer.started_at
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
