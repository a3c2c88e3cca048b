"""Calls that are counted in the metrics, without a server."""

from collections.abc import Sequence

from app import telemetry
from app.telemetry import ModelMetrics


def count_call(
    metrics: ModelMetrics | None,
    status: int,
    seconds: float,
    queue_s: float | None = None,
    stages_s: Sequence[float] | None = None,
) -> None:
    """Record a call that has ended; with None its model was not known."""
    without = telemetry.write_calls_without_model
    write = without if metrics is None else metrics.write_calls
    telemetry.record(write, (status, seconds, queue_s, stages_s, None))
