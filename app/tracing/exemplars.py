"""Exemplars: traces of requests, beside the buckets of histograms."""

from collections.abc import Sequence
from typing import Self

from prometheus_client import Histogram

from app.prometheus_private import observe_all


class Traced(float):
    """An amount, and the trace of a request that it belongs to."""

    trace_id: str

    def __new__(cls, amount: float, traceparent: str) -> Self:
        """Return an amount of the trace that W3C's `traceparent` names."""
        traced = super().__new__(cls, amount)
        traced.trace_id = traceparent.split("-")[1]
        return traced


def observe_with_exemplars(histogram: Histogram, amounts: Sequence[float]) -> None:
    """Observe amounts, and keep a trace of each touched bucket."""
    traced = [each for each in amounts if isinstance(each, Traced)]
    for each in traced:
        histogram.observe(each, {"trace_id": each.trace_id})
    observe_all(histogram, [each for each in amounts if not isinstance(each, Traced)])
