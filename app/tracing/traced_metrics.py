"""The series of one version, with exemplars, and spans of its batches."""

import time
from collections.abc import Sequence

from app.batching.fair_queue import JobSlice
from app.errors import BasketError
from app.telemetry import EndedCall, ModelMetrics
from app.tracing.exemplars import Traced, observe_with_exemplars
from app.tracing.spans import Outcome, Spans, Stage


class TracedMetrics(ModelMetrics):
    """ModelMetrics, with a span for each batch that has a row of a traced request."""

    def __init__(self, spans: Spans, model: str, version: str) -> None:
        """Create the series' children; `spans` makes the spans."""
        super().__init__(model, version, observe_with_exemplars)
        self._spans = spans
        self._model = {"basket.model": model, "basket.version": version}

    def batch_ran(
        self,
        rows: float,
        seconds: float,
        batch: Sequence[JobSlice],
        failure: BasketError | None,
    ) -> None:
        """Record a batch."""
        requests = [job.traceparent for job, _, _ in batch if job.traceparent]
        if not requests:
            super().batch_ran(rows, seconds, batch, failure)
            return
        now = time.monotonic()
        amounts = Traced(rows, requests[0]), Traced(seconds, requests[0])
        super().batch_ran(*amounts, batch, failure)
        numbers = {"basket.rows": int(rows), "basket.requests": len(batch)}
        outcome = Outcome({**self._model, **numbers}, str(failure or ""))
        self._spans.batch(Stage("batch", now - seconds, now), outcome, requests)

    def write_calls(self, calls: Sequence[EndedCall]) -> None:
        """Write calls that have ended, with traces as exemplars."""
        super().write_calls([_traced(each) for each in calls])


def _traced(call: EndedCall) -> EndedCall:
    status, seconds, queue_s, stages_s, traceparent = call
    if traceparent is None:
        return call
    if queue_s is not None:
        queue_s = Traced(queue_s, traceparent)
    return status, Traced(seconds, traceparent), queue_s, stages_s, traceparent
