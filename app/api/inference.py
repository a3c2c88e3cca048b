"""One request's way: lease a model, decode, submit, wait, encode.

Every route that predicts goes through `Inference.answer`; the protocols differ only
in how they read a body and write an answer, and the servers in how an Exchange waits:
all of it runs in the request's thread, or on an event loop and what is long beside it.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from app.api.body import unpack
from app.api.environ import sharer
from app.api.exchange import Exchange, HttpResponse
from app.api.response_overhead import ResponseOverhead
from app.batching.job import Answer, Job
from app.codec import images
from app.engines.base import Tensors
from app.errors import BadInput, Late
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings import Settings

# What is larger is not decoded or encoded while other requests wait for it: a body, and
# the outputs' arrays.
_QUICK_BYTES = 64 << 10


class Decoded(Protocol):
    """What a codec makes of a body."""

    @property
    def signature_name(self) -> str:
        """The function of the model that is asked."""
        ...

    @property
    def inputs(self) -> Tensors:
        """Rows (rows, *shape)."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """The request's own limit, where the body says one."""
        ...


_Decoded = TypeVar("_Decoded", bound=Decoded)


class Inference:
    """Answers requests from the catalog's models."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        """Store the parts."""
        self._catalog = catalog
        self._settings = settings
        self._way_back = ResponseOverhead()

    async def answer(
        self,
        exchange: Exchange,
        target: Target,
        decode: Callable[[Exchange, bytes, ServedModel], _Decoded],
        encode: Callable[[Exchange, ServedModel, _Decoded, Tensors], HttpResponse],
    ) -> HttpResponse:
        """Serve one request.

        Raises:
            BasketError: whatever is wrong with the request, or goes wrong on the way.
        """
        settings = self._settings
        limit_s = _timeout_s(exchange, settings.request_timeout_ms)
        body = await exchange.body(settings.max_body_bytes)
        with self._catalog.lease(target) as model:
            exchange.model = model
            quick = _decodes_quickly(exchange, body, model)
            decoded = await exchange.work(
                quick, self._decoded, decode, exchange, body, model
            )
            job = self._job(exchange, decoded, limit_s)
            await exchange.submit(model.runner, job)
            exchange.job = job
            if model.runner.runs_in_submit and time.monotonic() >= job.deadline:
                # Where nobody waited, nobody was told in time.
                raise Late("no answer was ready before the request's deadline")
            answer = await exchange.answered(job)
        answered_at = time.monotonic()
        quick = _encodes_quickly(answer.outputs)
        reply = await exchange.work(
            quick, encode, exchange, model, decoded, answer.outputs
        )
        encoded_at = time.monotonic()
        self._way_back.took(encoded_at - answer.finished_at)
        decode_s = job.enqueued_at - exchange.arrived_at
        spans_s = _spans_s(decode_s, answer, encoded_at - answered_at)
        model.observer.request_went_through(spans_s)
        reply.headers += _about(model, answer, spans_s)
        return reply

    def _decoded(
        self,
        decode: Callable[[Exchange, bytes, ServedModel], _Decoded],
        exchange: Exchange,
        body: bytes,
        model: ServedModel,
    ) -> _Decoded:
        unpacked = unpack(exchange.environ, body, self._settings.max_body_bytes)
        return decode(exchange, unpacked, model)

    def _job(self, exchange: Exchange, decoded: Decoded, limit_s: float) -> Job:
        timeout_s = min(limit_s, decoded.timeout_s or limit_s)
        job = Job(
            decoded.inputs,
            exchange.arrived_at + timeout_s,
            exchange.is_gone(),
            decoded.signature_name,
            sharer(exchange.environ),
            self._way_back.reserve_s(timeout_s),
        )
        job.wake = exchange.wake
        return job


def _decodes_quickly(exchange: Exchange, body: bytes, model: ServedModel) -> bool:
    """Say whether a body is small, and all that it may unpack to.

    A few bytes may unpack to many, or to a large picture, in JSON and forms too.
    """
    if len(body) > _QUICK_BYTES or "HTTP_CONTENT_ENCODING" in exchange.environ:
        return False
    config = model.config.image
    return config is None or images.is_quick(body, config)


def _encodes_quickly(outputs: Tensors) -> bool:
    sizes = [each.nbytes for each in outputs.values() if not each.dtype.hasobject]
    return len(sizes) == len(outputs) and sum(sizes) <= _QUICK_BYTES


def _timeout_s(exchange: Exchange, limit_ms: int) -> float:
    """The request's own timeout, which may only shorten the server's."""
    text = exchange.header("X-Request-Timeout-Ms")
    if text is None:
        return limit_ms / 1000
    significant = text.lstrip("0")
    if not text.isascii() or not significant.isdigit():
        raise BadInput(
            "X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
            f"{text[:40]!r}"
        )
    # Shortened, as Python takes no more than 4300 digits.
    return min(int(significant[:18]), limit_ms) / 1000


def _spans_s(decode_s: float, answer: Answer, encode_s: float) -> dict[str, float]:
    return {
        "decode": decode_s,
        "queue": answer.queue_s,
        "infer": answer.infer_s,
        "encode": encode_s,
    }


def _about(
    model: ServedModel, answer: Answer, spans_s: dict[str, float]
) -> list[tuple[str, str]]:
    """Headers that say which version answered, in what batch, and how long it took."""
    timing = [f"{name};dur={seconds * 1000:.3f}" for name, seconds in spans_s.items()]
    return [
        ("X-Model-Version", str(model.version)),
        ("X-Batch-Size", str(answer.batch_rows)),
        ("Server-Timing", ", ".join(timing)),
    ]
