"""Sums of metrics as JSON values."""

import json

from app.telemetry import ModelMetrics, rejected, totals
from app.totals import STAGES, Sums
from tests.support.metrics import count_call


def test_sums_are_the_same_from_json():
    """What was written as JSON is read with all of its numbers."""
    metrics = ModelMetrics("kept", "3")
    count_call(metrics, 200, 0.5, stages_s=[0.25] * len(STAGES))
    count_call(metrics, 503, 0.02)
    metrics.batch_ran(4, 0.125, [], None)
    metrics.batch_limited(32)
    metrics.rows_waiting(7)
    rejected("kept")
    sums = totals()
    kept = sums.versions["kept", "3"]
    assert (kept.by_status, kept.rows) == ({"200": 1, "503": 1}, 4)
    assert (kept.batches, kept.infer_seconds) == (1, 0.125)
    assert (kept.queue_rows, kept.ceiling_rows) == (7, 32)
    assert (kept.buckets["0.01"], kept.buckets["0.025"]) == (0, 1)
    assert kept.buckets["+Inf"] == 2
    assert sums.rejected["kept"] == 1
    assert Sums.from_json(json.loads(json.dumps(sums.to_json()))) == sums
