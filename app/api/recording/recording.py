"""What is kept of requests beside the metrics: captured ones, and the request log."""

import random
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from app import telemetry, unbuffered_metrics
from app.api.environ import client_name
from app.api.exchange import Exchange
from app.api.recording import rollouts
from app.api.recording.samples import bytes_of, of_groups, of_instances, owned
from app.api.recording.shadow import Copy, Shadow
from app.batching.job import Answer
from app.capture.captured import ROWS, WHOLE, Captured
from app.capture.recorder import DROPPED, Recorder, Sample
from app.capture.request_log import Entry, RequestLog
from app.codec.uneven import Uneven
from app.promotion.evidence import Evidence
from app.repository.catalog import Catalog
from app.repository.recorded import NOTHING, Recorded
from app.repository.served import ServedModel
from app.settings import Settings

_MB = 1_000_000
# A sample that nobody could predict, but no secret.
_chance = random.Random()  # noqa: S311


def sampled(recorded: Recorded, chance: random.Random = _chance) -> Recorded:
    """Return what of `recorded` one request is in the sample of, or NOTHING itself."""
    if recorded is NOTHING:
        return NOTHING
    capture, shadow = recorded
    if capture is not None and chance.random() >= capture.share:
        capture = None
    if shadow is not None and chance.random() >= shadow.share:
        shadow = None
    if capture is None and shadow is None:
        return NOTHING
    chosen = capture, shadow
    return recorded if chosen == recorded else Recorded(*chosen)


class Recording:
    """Hands requests to the threads that write them; any thread may call it."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        evidence: Evidence,
        chance: random.Random = _chance,
    ) -> None:
        """Store the parts; the threads start with the first request.

        `evidence` has the counts of rollouts; `chance` samples the request log.
        """
        self._chance = chance
        self._evidence = evidence
        self._shadow = Shadow(catalog, settings.request_timeout_ms / 1000)
        self._recorder = self._log = None
        if settings.capture_dir is not None:
            self._recorder = Recorder(settings.capture_dir, _count)
        if settings.request_log is not None:
            self._log = RequestLog(
                settings.request_log, unbuffered_metrics.request_log_dropped
            )
        self._log_share = settings.request_log_share

    def record(
        self,
        exchange: Exchange,
        model: ServedModel,
        decoded: Any,
        answer: Answer,
        body: bytes,
    ) -> None:
        """Capture an answered request, whose response has this body, or copy it.

        `exchange.recorded` says which. The response is sent within 10 ms.
        """
        capture, shadow = exchange.recorded
        if capture is not None and not (
            self._recorder and self._recorder.takes(model.name)
        ):
            capture = None
        if not model.has_tensors:
            shadow = None
        if capture is None and shadow is None:
            return
        request, size = _made(exchange, model, decoded, answer, body)
        if capture is not None and self._recorder is not None:
            keep_bytes = capture.keep_mb * _MB
            self._recorder.record(Sample(model.name, keep_bytes, size, request))
        if shadow is not None:
            self._shadow.copy(
                Copy(model, shadow.label, exchange.rows or 0, size, request)
            )

    def finished(self, exchange: Exchange, status: int) -> None:
        """Count a finished request, and write it to the log if it is in the sample."""
        rollouts.count(self._evidence, exchange, status)
        log = self._log
        if log is None or self._chance.random() >= self._log_share:
            return
        model = exchange.model
        log.add(
            Entry(
                time.time(),
                exchange.request_id,
                client_name(exchange.environ),
                model.name if model else None,
                model.version if model else None,
                status,
                exchange.rows,
                time.monotonic() - exchange.arrived_at,
                exchange.stages_s,
            )
        )

    def close(self, timeout_s: float) -> None:
        """Write what waits to be written, and drop copies; may be called twice."""
        self._shadow.close()
        for each in (self._recorder, self._log):
            if each is not None:
                each.close(timeout_s)


def _count(model: str, result: str, number: int) -> None:
    if result == DROPPED:
        # One by one, and under load nearly all requests: too many to write at once.
        telemetry.record(_drops(model), number)
    else:
        unbuffered_metrics.captured(model, result, number)


@cache
def _drops(model: str) -> Callable[[list[int]], None]:
    return lambda numbers: unbuffered_metrics.captured(model, DROPPED, sum(numbers))


def _made(
    exchange: Exchange, model: ServedModel, decoded: Any, answer: Answer, body: bytes
) -> tuple[Captured | Callable[[], Sequence[Captured]], int]:
    """Return what is written of a request, and about how many bytes that is."""
    about = (
        exchange.rows or 0,
        time.time(),
        exchange.request_id,
        model.version,
        answer.batch_rows,
        time.monotonic() - exchange.arrived_at,
    )
    name, inputs = decoded.signature_name, decoded.inputs
    if not model.has_tensors:
        instances = exchange.instances or []
        size = len(body) + sum(map(len, instances))
        return partial(of_instances, instances, body, about), size
    outputs, size = owned(answer.outputs)
    form = WHOLE if model.signatures[name].takes_whole_tensors else ROWS
    if isinstance(inputs, Uneven):
        size += sum(map(bytes_of, inputs.groups))
        return partial(of_groups, name, inputs, outputs, form, about), size
    size += bytes_of(inputs)
    return Captured(name, inputs, outputs, form, *about), size
