"""All metric objects, named here and nowhere else.

Under Gunicorn PROMETHEUS_MULTIPROC_DIR is set before this module is imported;
each process then writes its values to files there, and any of them can sum up all.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    values,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as CollectorBase

from app.metrics_files import Collector

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR" in os.environ
if _MULTIPROCESS:
    # By itself it asks the kernel for the process at each count, for the case of a
    # fork after this import: a tenth of what a small request costs.
    _pid = os.getpid()
    values.ValueClass = values.MultiProcessValue(lambda: _pid)  # type: ignore[no-untyped-call]

# What an answered request goes through, in this order.
STAGES = ("decode", "queue", "infer", "encode")
# As a number: a member of an enumeration is a property, looked up at each request.
_OK = HTTPStatus.OK.value
_MODEL = ("model", "version")
_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0),
)
_ROWS = tuple(float(1 << power) for power in range(11))

_requests = Counter(
    "basket_requests", "Inference requests answered.", (*_MODEL, "status")
)
_request_seconds = Histogram(
    "basket_request_seconds",
    "From the request's arrival in its thread to its answer, failures included.",
    _MODEL,
    buckets=_SECONDS,
)
_queue_seconds = Histogram(
    "basket_queue_seconds",
    "From enqueueing to the start of the batch, or to the failure before it.",
    _MODEL,
    buckets=_SECONDS,
)
_infer_seconds = Histogram(
    "basket_infer_seconds", "One batch in the engine.", _MODEL, buckets=_SECONDS
)
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


class Problems(CollectorBase):
    """The one series that is not kept, but made when somebody asks."""

    def __init__(self, problems: Mapping[str, int]) -> None:
        """Store how many things are wrong now with each model."""
        self._problems = problems

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Give it."""
        family = GaugeMetricFamily(
            "basket_model_problems", "What is wrong with a model now.", labels=["model"]
        )
        for model, number in self._problems.items():
            family.add_metric([model], number)
        yield family


@dataclass
class Totals:
    """What one version has done since the start; rows and batches failed ones too."""

    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0
    failed_seconds: float = 0.0
    rows: int = 0
    batches: int = 0
    stage_seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(STAGES, 0.0)
    )


class ModelMetrics:
    """The series of one version, and the Observer of its batches."""

    def __init__(self, model: str, version: str) -> None:
        """Look the children up once."""
        # By status; to look a child up takes longer than to count.
        self._requests = cache(lambda status: _requests.labels(model, version, status))
        self._request_seconds = _request_seconds.labels(model, version)
        self._queue_seconds = _queue_seconds.labels(model, version)
        self._infer_seconds = _infer_seconds.labels(model, version)
        self._batch_rows = _batch_rows.labels(model, version)
        self._queue_rows = _queue_rows.labels(model, version)
        self._reruns = _reruns.labels(model, version)
        # Made with its first value: where no batches run, its 0 would be the least.
        self._batch_ceiling = cache(lambda: _batch_ceiling.labels(model, version))
        self._stage_seconds = {
            stage: _stage_seconds.labels(model, version, stage) for stage in STAGES
        }
        self._failed_seconds = _failed_seconds.labels(model, version)

    def batch_ran(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_rows.observe(rows)
        self._infer_seconds.observe(seconds)

    def batch_reran(self) -> None:
        """Count a rerun; `batch_ran` counts it as a batch, too."""
        self._reruns.inc()

    def batch_limited(self, rows: int) -> None:
        """Show how large a batch may be."""
        self._batch_ceiling().set(rows)

    def rows_waiting(self, rows: int) -> None:
        """Show the queue's length."""
        self._queue_rows.set(rows)

    def job_left_queue(self, seconds: float) -> None:
        """Count a job's time in the queue."""
        self._queue_seconds.observe(seconds)

    def request_went_through(self, stages_s: Mapping[str, float]) -> None:
        """Add up what an answered request spent in each of STAGES."""
        for stage, seconds in stages_s.items():
            # A counter refuses what is negative, and must never fail a request.
            self._stage_seconds[stage].inc(max(seconds, 0.0))

    def request_answered(self, status: int, seconds: float) -> None:
        """Count a request, whatever its status."""
        self._requests(status).inc()
        self._request_seconds.observe(seconds)
        if status != _OK:
            self._failed_seconds.inc(seconds)


def request_without_model(status: int, seconds: float) -> None:
    """Count a request that ended before it was known which model it is for."""
    _requests.labels("", "", str(status)).inc()
    _request_seconds.labels("", "").observe(seconds)


def rejected(reason: str) -> None:
    """Count a request that was turned away, by its error's `reason`."""
    _rejected.labels(reason).inc()


def exposition(problems: Mapping[str, int]) -> tuple[bytes, str]:
    """All series in Prometheus's text format, and its content type.

    `problems` is how many things are wrong now with each model there is.
    """
    counted, derived = generate_latest(_registry()), CollectorRegistry()
    derived.register(Problems(problems))
    return counted + generate_latest(derived), CONTENT_TYPE_LATEST


def totals() -> dict[tuple[str, str], Totals]:
    """What each model and version has done, in all processes, as /metrics has it."""
    found: dict[tuple[str, str], Totals] = defaultdict(Totals)
    for family in _registry().collect():
        for sample in family.samples:
            labels = sample.labels
            if "model" in labels:
                key = labels["model"], labels["version"]
                _add(found[key], sample.name, labels, sample.value)
    return found


def _add(sums: Totals, series: str, labels: Mapping[str, str], value: float) -> None:
    if series == "basket_requests_total":
        if labels["status"] == str(_OK):
            sums.succeeded += int(value)
        else:
            sums.failed += int(value)
    elif series == "basket_request_seconds_sum":
        sums.seconds = value
    elif series == "basket_failed_seconds_total":
        sums.failed_seconds = value
    elif series == "basket_stage_seconds_total":
        sums.stage_seconds[labels["stage"]] = value
    elif series == "basket_batch_rows_sum":
        sums.rows = int(value)
    elif series == "basket_batch_rows_count":
        sums.batches = int(value)


def _registry() -> CollectorRegistry:
    if not _MULTIPROCESS:
        return REGISTRY
    registry = CollectorRegistry()
    Collector(registry)  # type: ignore[no-untyped-call]
    return registry
