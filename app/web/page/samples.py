"""What a server did in a second, from the sums of its metrics before and after it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Any, TypeVar

from app.totals import STAGES, Sums, Totals

# The shares of requests for which a sample has the time.
_SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_DIGITS = 3
_K = TypeVar("_K")
_N = TypeVar("_N", int, float)


def sample_of(
    before: Sums, after: Sums, seconds: float, engines: int
) -> dict[str, Any]:
    """Return rates a second, percentiles and means of each model, and gauges of now.

    `engines` is the number of processes that hold each model. Requests without a model
    are those of model "", which is there only if there are any.
    """
    grown: dict[str, list[Totals]] = defaultdict(list)
    for (model, version), totals in after.versions.items():
        earlier = before.versions.get((model, version), Totals())
        grown[model].append(_growth(earlier, totals))
    models = {
        model: _of_model(versions, seconds, engines)
        for model, versions in grown.items()
        if model or any(sum(each.by_status.values()) for each in versions)
    }
    rejected = _growth_of(before.rejected, after.rejected)
    return {"models": models, "rejected": _rates(rejected, seconds)}


def percentile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return the value below which a share of observations lies; None without any.

    `buckets` has the observations up to each bound, which may be infinite. The result
    is linear between two bounds, and at most the largest finite one.
    """
    total = max(buckets.values(), default=0)
    if not total:
        return None
    rank = share * total
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *sorted(buckets.items())]):
        if count >= rank:
            if high == inf:
                return low
            part = (rank - below) / (count - below)
            # Rounding may exceed the bound.
            return min(low + (high - low) * part, high)
    return None


def _of_model(
    versions: Iterable[Totals], seconds: float, engines: int
) -> dict[str, Any]:
    versions = list(versions)
    statuses = _sum(each.by_status for each in versions)
    buckets = _sum(each.buckets for each in versions)
    bounds = {float(bound): count for bound, count in buckets.items()}
    stages = _sum(each.stage_seconds for each in versions)
    succeeded = sum(each.succeeded for each in versions)
    batches = sum(each.batches for each in versions)
    rows = sum(each.rows for each in versions)
    busy_s = sum(each.infer_seconds for each in versions)
    ceilings = [each.ceiling_rows for each in versions if each.ceiling_rows]
    return {
        "status": _rates(statuses, seconds),
        **{name: _ms(percentile(bounds, share)) for name, share in _SHARES.items()},
        "stages_ms": {
            stage: _ms(stages[stage] / succeeded) if succeeded else None
            for stage in STAGES
        },
        "batch_rows": round(rows / batches, _DIGITS) if batches else None,
        "ceiling_rows": min(ceilings, default=None),
        "queue_rows": sum(each.queue_rows for each in versions),
        "busy": round(busy_s / seconds / engines, _DIGITS),
    }


def _growth(before: Totals, after: Totals) -> Totals:
    """Return by how much the counters have grown, with the gauges of now."""
    return Totals(
        by_status=_growth_of(before.by_status, after.by_status),
        buckets=_growth_of(before.buckets, after.buckets),
        stage_seconds=_growth_of(before.stage_seconds, after.stage_seconds),
        infer_seconds=_grown(before.infer_seconds, after.infer_seconds),
        rows=_grown(before.rows, after.rows),
        batches=_grown(before.batches, after.batches),
        queue_rows=after.queue_rows,
        ceiling_rows=after.ceiling_rows,
    )


def _growth_of(
    before: Mapping[_K, float], after: Mapping[_K, float]
) -> dict[_K, float]:
    """Return the differences; if any counter went back, all have started again."""
    if any(value < before.get(key, 0) for key, value in after.items()):
        return dict(after)
    return {key: value - before.get(key, 0) for key, value in after.items()}


def _grown(before: _N, after: _N) -> _N:
    return after - before if after >= before else after


def _sum(parts: Iterable[Mapping[_K, float]]) -> dict[_K, float]:
    sums: dict[_K, float] = defaultdict(float)
    for part in parts:
        for key, value in part.items():
            sums[key] += value
    return sums


def _rates(counts: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {
        key: round(count / seconds, _DIGITS)
        for key, count in sorted(counts.items())
        if count
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, _DIGITS)
