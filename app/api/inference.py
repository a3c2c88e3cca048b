"""One request's way: lease a model, decode, submit, wait, encode.

Every route that predicts goes through `Inference.answer`; the protocols differ only
in how they read a body and write an answer. All of it runs in the request's thread.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from app.api.body import read_body
from app.api.client import hung_up
from app.api.exchange import Exchange, Reply, sharer
from app.api.way_back import WayBack
from app.engines.base import Tensors
from app.errors import BadInput
from app.serving.catalog import Catalog
from app.serving.job import Answer, Job
from app.serving.routing import Target
from app.serving.served import ServedModel
from app.settings import Settings


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
        self._way_back = WayBack()

    def answer(
        self,
        exchange: Exchange,
        target: Target,
        decode: Callable[[Exchange, bytes, ServedModel], _Decoded],
        encode: Callable[[Exchange, ServedModel, _Decoded, Tensors], Reply],
    ) -> Reply:
        """Serve one request.

        Raises:
            BasketError: whatever is wrong with the request, or goes wrong on the way.
        """
        settings = self._settings
        limit_s = _timeout_s(exchange, settings.request_timeout_ms)
        body = read_body(exchange, settings.max_body_bytes)
        with self._catalog.lease(target) as model:
            exchange.model = model
            decoded = decode(exchange, body, model)
            job = exchange.job = self._submit(exchange, model, decoded, limit_s)
            answer = job.wait()
        answered_at = time.monotonic()
        reply = encode(exchange, model, decoded, answer.outputs)
        encoded_at = time.monotonic()
        self._way_back.took(encoded_at - answer.finished_at)
        spans_s = {
            "decode": job.enqueued_at - exchange.arrived_at,
            "queue": answer.queue_s,
            "infer": answer.infer_s,
            "encode": encoded_at - answered_at,
        }
        model.observer.request_went_through(spans_s)
        reply.headers += _about(model, answer, spans_s)
        return reply

    def _submit(
        self, exchange: Exchange, model: ServedModel, decoded: Decoded, limit_s: float
    ) -> Job:
        timeout_s = min(limit_s, decoded.timeout_s or limit_s)
        job = Job(
            decoded.inputs,
            exchange.arrived_at + timeout_s,
            hung_up(exchange.environ),
            decoded.signature_name,
            sharer(exchange.environ),
            self._way_back.reserve_s(timeout_s),
        )
        model.runner.submit(job)
        return job


def _timeout_s(exchange: Exchange, limit_ms: int) -> float:
    """The request's own timeout, which may only shorten the server's."""
    text = exchange.header("X-Request-Timeout-Ms")
    if text is None:
        return limit_ms / 1000
    if not text.isascii() or not text.isdigit() or int(text[:18]) == 0:
        raise BadInput(
            f"X-Request-Timeout-Ms: expected a whole number of ms, given {text[:40]!r}"
        )
    return min(int(text[:18]), limit_ms) / 1000


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
