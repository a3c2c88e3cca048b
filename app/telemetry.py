"""All metric objects, and the records that wait to be written into them.

Most methods only append a record. `flush` writes the records of many requests with
one increment per series. Call it once per batch or tick.

Under Gunicorn PROMETHEUS_MULTIPROC_DIR is set before this module is imported: each
process writes its values to files there, and any process can sum up all of them. No
other process sees a record before it is flushed.
"""

import atexit
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector as CollectorBase

from app.prometheus_private import Pending, Write, fix_process_id, observe_all, registry
from app.totals import STAGES, Sums, summed

fix_process_id()

_OK = HTTPStatus.OK.value
_OPENMETRICS = "application/openmetrics-text"
_MODEL = ("model", "version")
_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0),
)
_ROWS = tuple(float(1 << power) for power in range(11))

_requests = Counter(
    "basket_requests", "Inference requests answered.", (*_MODEL, "status")
)
_seconds = partial(Histogram, labelnames=_MODEL, buckets=_SECONDS)
_request_seconds = _seconds(
    "basket_request_seconds",
    "From the request's arrival to its answer, failures included.",
)
_queue_seconds = _seconds(
    "basket_queue_seconds",
    "From enqueueing to the start of the batch, or to the failure before it.",
)
_infer_seconds = _seconds("basket_infer_seconds", "One batch in the engine.")
_batch_rows = Histogram(
    "basket_batch_rows", "Rows in one batch.", _MODEL, buckets=_ROWS
)
_queue_rows = Gauge(
    "basket_queue_rows", "Rows that wait now.", _MODEL, multiprocess_mode="livesum"
)
_reruns = Counter(
    "basket_reruns", "Batches run again, because one that held them failed.", _MODEL
)
_batch_ceiling = Gauge(
    "basket_batch_ceiling_rows",
    "The most rows that a batch may have now, for the device's memory.",
    _MODEL,
    multiprocess_mode="livemin",
)
_stage_seconds = Counter(
    "basket_stage_seconds",
    "Spent by answered requests in each stage: decode, queue, infer, encode.",
    (*_MODEL, "stage"),
)
_failed_seconds = Counter(
    "basket_failed_seconds", "Spent by requests that were not answered well.", _MODEL
)
_rejected = Counter(
    "basket_rejected", "Requests that got no answer from a model.", ("reason",)
)

Observe = Callable[[Histogram, Sequence[float]], None]
# What is counted of a call that has ended: status, seconds, those in the queue (None
# unless its job was in one), those in each of STAGES (None unless it was answered), and
# W3C's name of its span (None unless it is traced).
EndedCall = tuple[int, float, float | None, Sequence[float] | None, str | None]

# The limit keeps a flush below a millisecond, where it runs on an event loop.
_pending = Pending(max_records=1000)


# Gauges that are computed at each scrape: their meaning and labels.
_CURRENT: Mapping[str, tuple[str, Sequence[str]]] = {
    "basket_model_problems": ("What is wrong with a model now.", ["model"]),
    "basket_model_versions": ("Versions in a state.", ["model", "state"]),
    "basket_traffic_share": ("Of the requests that name no version.", _MODEL),
    "basket_rollout_step": ("The step of a rollout, from 1.", _MODEL),
    "basket_queue_limit_rows": ("The most rows that may wait.", _MODEL),
    "basket_memory_bytes": ("Of all processes; what they share counts once.", []),
    "basket_gpu_memory_bytes": ("A GPU's memory.", ["gpu"]),
    "basket_gpu_memory_used_bytes": ("Used by any process.", ["gpu"]),
}
# By series, and by the values of its labels.
Gauges = Mapping[str, Mapping[tuple[str, ...], float]]


class Current(CollectorBase):
    """Collects the series that are computed at each scrape."""

    def __init__(self, gauges: Gauges) -> None:
        """Store the values."""
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all series, those without values too."""
        for name, (meaning, labels) in _CURRENT.items():
            family = GaugeMetricFamily(name, meaning, labels=labels)
            for values, number in self._gauges.get(name, {}).items():
                family.add_metric(values, number)
            yield family


class ModelMetrics:
    """The series of one version, and the Observer of its batches."""

    def __init__(
        self, model: str, version: str, observe: Observe = observe_all
    ) -> None:
        """Create the children that /metrics has from the start."""
        labels = (model, version)
        _request_seconds.labels(*labels)
        _failed_seconds.labels(*labels)
        self._batch_rows = partial(observe, _batch_rows.labels(*labels))
        self._infer_seconds = partial(observe, _infer_seconds.labels(*labels))
        # Stores the queue's length for the next flush.
        self.rows_waiting = _pending.setter(_queue_rows.labels(*labels))
        self._reruns = _reruns.labels(*labels)
        # Created with its first value: a 0 from before it would be the minimum.
        self._batch_ceiling = cache(lambda: _batch_ceiling.labels(*labels))
        self._answered = cache(partial(_answered, *labels, observe=observe))
        self._queued = partial(observe, _queue_seconds.labels(*labels))
        self._went_through = _went_through(*labels)

    def batch_ran(
        self,
        rows: float,
        seconds: float,
        batch: Any,
        failure: Any,
    ) -> None:
        """Record a batch."""
        _pending.record(self._batch_rows, rows)
        _pending.record(self._infer_seconds, seconds)

    def batch_reran(self) -> None:
        """Count a rerun; `batch_ran` counts it as a batch, too."""
        self._reruns.inc()

    def batch_limited(self, rows: int) -> None:
        """Set the batch ceiling."""
        self._batch_ceiling().set(rows)

    def write_calls(self, calls: Sequence[EndedCall]) -> None:
        """Write calls that have ended, whatever their status."""
        seconds: dict[int, list[float]] = defaultdict(list)
        for status, whole_s, *_ in calls:
            seconds[status].append(whole_s)
        for status, each in seconds.items():
            self._answered(status)(each)
        if queued_s := [each[2] for each in calls if each[2] is not None]:
            self._queued(queued_s)
        if stages_s := [each[3] for each in calls if each[3] is not None]:
            self._went_through(stages_s)


def write_calls_without_model(calls: Sequence[EndedCall]) -> None:
    """Write calls that ended before their model was known."""
    for status, seconds, *_ in calls:
        _answered("", "", status)([seconds])


def rejected(reason: str) -> None:
    """Record a rejected request, by its error's `reason`."""
    _pending.record(_rejections(reason), 1)


@cache
def _answered(
    model: str, version: str, status: int, observe: Observe = observe_all
) -> Write:
    requests = _requests.labels(model, version, status)
    request_seconds = _request_seconds.labels(model, version)

    def write(seconds: list[float]) -> None:
        requests.inc(len(seconds))
        observe(request_seconds, seconds)
        if model and status != _OK:
            # A counter refuses negative amounts.
            positive = [each for each in seconds if each > 0]
            _failed_seconds.labels(model, version).inc(sum(positive))

    return write


def _went_through(
    model: str, version: str
) -> Callable[[Sequence[Sequence[float]]], None]:
    counters = [_stage_seconds.labels(model, version, stage) for stage in STAGES]

    def write(calls: Sequence[Sequence[float]]) -> None:
        for counter, seconds in zip(counters, zip(*calls, strict=True), strict=True):
            # A counter refuses negative amounts.
            counter.inc(sum([each for each in seconds if each > 0]))

    return write


@cache
def _rejections(reason: str) -> Write:
    return lambda ones: _rejected.labels(reason).inc(len(ones))


# Neither raises, and any thread may call both at any time.
record = _pending.record
record_all = _pending.record_all
flush = _pending.flush
atexit.register(flush)


def collect(gauges: Gauges) -> Iterator[Metric]:
    """Yield all metrics of this process, with `gauges` of now."""
    flush()
    yield from registry().collect()
    yield from Current(gauges).collect()


def exposition(gauges: Gauges, accept: str) -> tuple[bytes, str]:
    """Return /metrics and its content type, with `gauges` of now.

    It is in OpenMetrics's format, the only one with exemplars, if `accept` names it.
    """
    flush()
    both = CollectorRegistry()
    for each in (registry(), Current(gauges)):
        both.register(each)
    if _OPENMETRICS in accept:
        text: bytes = openmetrics.generate_latest(both)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(both), CONTENT_TYPE_LATEST


def totals() -> Sums:
    """Return the sums over all processes, as in /metrics."""
    flush()
    return summed(registry().collect())
