"""The series of one version, with exemplars, and spans of its batches.

An exemplar is the trace of a request, beside a bucket of a histogram.
"""

import time
from collections.abc import Sequence
from functools import partial

from prometheus_client import Histogram

from app.batching.fair_queue import JobSlice
from app.errors import BasketError
from app.prometheus_private import observe_all
from app.telemetry import EndedCall, ModelMetrics
from app.tracing.spans import Attributes, Spans


class TracedMetrics(ModelMetrics):
    """ModelMetrics, with a span for each batch that has a row of a traced request."""

    def __init__(self, spans: Spans, model: str, version: str) -> None:
        """Create the series' children; `spans` makes the spans."""
        super().__init__(model, version, _observe)
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
        traced_rows, traced_s = _Traced(rows), _Traced(seconds)
        traced_rows.traceparent = traced_s.traceparent = requests[0]
        super().batch_ran(traced_rows, traced_s, batch, failure)
        attributes: Attributes = {
            **self._model,
            "basket.rows": int(rows),
            "basket.requests": len(batch),
        }
        error = str(failure or "")
        batch_stage = ("batch", now - seconds, now)
        make, recorder = self._spans.make_batch, self._spans.recorder
        recorder.record(partial(make, batch_stage, attributes, error, requests))

    def write_calls(self, calls: Sequence[EndedCall]) -> None:
        """Write calls that have ended, with traces as exemplars."""
        super().write_calls([_traced(each) for each in calls])


class _Traced(float):
    """An amount, and the trace of a request that it belongs to, by W3C's name."""

    traceparent: str


def _traced(call: EndedCall) -> EndedCall:
    status, seconds, queue_s, stages_s, traceparent = call
    if traceparent is None:
        return call
    seconds = _Traced(seconds)
    seconds.traceparent = traceparent
    if queue_s is not None:
        queue_s = _Traced(queue_s)
        queue_s.traceparent = traceparent
    return status, seconds, queue_s, stages_s, traceparent


def _observe(histogram: Histogram, amounts: Sequence[float]) -> None:
    """Observe amounts, and keep a trace of each touched bucket."""
    untraced = []
    for each in amounts:
        if isinstance(each, _Traced):
            trace_id = each.traceparent.split("-")[1]
            histogram.observe(each, {"trace_id": trace_id})
        else:
            untraced.append(each)
    observe_all(histogram, untraced)
