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
from app.batching.job import Job
from app.capture.captured import ROWS, WHOLE, Captured
from app.capture.recorder import DROPPED, Recorder, Sample
from app.capture.request_log import Entry, RequestLog
from app.codec.uneven import Uneven
from app.promotion.evidence import Evidence
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import CaptureConfig

_MB = 1_000_000
# A sample that nobody could predict, but no secret.
_chance = random.Random()  # noqa: S311


def sampled(
    capture: CaptureConfig | None, chance: random.Random = _chance
) -> CaptureConfig | None:
    """Return how one request is captured; None: it is not in the sample."""
    if capture is None or chance.random() >= capture.share:
        return None
    return capture


class Recording:
    """Hands requests to the threads that write them; any thread may call it."""

    def __init__(
        self,
        settings: Settings,
        evidence: Evidence,
        chance: random.Random = _chance,
    ) -> None:
        """Store the parts; the threads start with the first request.

        `evidence` has the counts of rollouts; `chance` samples the request log.
        """
        self._chance = chance
        self._evidence = evidence
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
        answer: Job,
        body: bytes,
    ) -> None:
        """Capture an answered request, whose response has this body."""
        capture, recorder = exchange.capture, self._recorder
        if capture is None or recorder is None or not recorder.takes(model.name):
            return
        request, size = _made(exchange, model, decoded, answer, body)
        recorder.record(Sample(model.name, capture.keep_mb * _MB, size, request))

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
        """Write what waits to be written; may be called twice."""
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
    exchange: Exchange, model: ServedModel, decoded: Any, answer: Job, body: bytes
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
    outputs, size = owned(answer.result())
    form = WHOLE if model.signatures[name].takes_whole_tensors else ROWS
    if isinstance(inputs, Uneven):
        size += sum(map(bytes_of, inputs.groups))
        return partial(of_groups, name, inputs, outputs, form, about), size
    size += bytes_of(inputs)
    return Captured(name, inputs, outputs, form, *about), size
