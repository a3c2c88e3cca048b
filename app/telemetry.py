"""All metric objects, named here and nowhere else.

Under Gunicorn PROMETHEUS_MULTIPROC_DIR is set before this module is imported;
each process then writes its values to files there, and any of them can sum up all.
"""

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

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
_rejected = Counter(
    "basket_rejected", "Requests that got no answer from a model.", ("reason",)
)


class ModelMetrics:
    """The series of one version, and the Observer of its batches."""

    def __init__(self, model: str, version: str) -> None:
        """Look the children up once; both labels empty where no model is known."""
        self._labels = (model, version)
        self._request_seconds = _request_seconds.labels(model, version)
        self._queue_seconds = _queue_seconds.labels(model, version)
        self._infer_seconds = _infer_seconds.labels(model, version)
        self._batch_rows = _batch_rows.labels(model, version)
        self._queue_rows = _queue_rows.labels(model, version)

    def batch_ran(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_rows.observe(rows)
        self._infer_seconds.observe(seconds)

    def rows_waiting(self, rows: int) -> None:
        """Show the queue's length."""
        self._queue_rows.set(rows)

    def job_left_queue(self, seconds: float) -> None:
        """Count a job's time in the queue."""
        self._queue_seconds.observe(seconds)

    def request_answered(self, status: int, seconds: float) -> None:
        """Count a request, whatever its status."""
        _requests.labels(*self._labels, str(status)).inc()
        self._request_seconds.observe(seconds)


def request_without_model(status: int, seconds: float) -> None:
    """Count a request that ended before it was known which model it is for."""
    _requests.labels("", "", str(status)).inc()
    _request_seconds.labels("", "").observe(seconds)


def rejected(reason: str) -> None:
    """Count a request that was turned away, by its error's `reason`."""
    _rejected.labels(reason).inc()


def exposition() -> tuple[bytes, str]:
    """All series in Prometheus's text format, and its content type."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE_LATEST
