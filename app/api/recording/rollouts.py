"""Counts what the two versions of a rollout answer."""

import math
import time

import numpy as np

from app.api.exchange import Exchange
from app.engines.base import Tensors
from app.promotion.evidence import Evidence


def count(evidence: Evidence, exchange: Exchange, status: int) -> None:
    """Count a finished request if its version is one of a rollout."""
    rollout, model = exchange.rollout, exchange.model
    if rollout is None or not rollout.key or model is None:
        return
    if model.version not in (rollout.serving, rollout.candidate):
        return
    answer = exchange.answer
    evidence.count(
        *(rollout.key, rollout.phase, model.version == rollout.candidate, status),
        time.monotonic() - exchange.arrived_at,
        answer is not None and not _is_finite(answer.result()),
    )


def _is_finite(outputs: Tensors) -> bool:
    """Return whether there is neither NaN nor infinity in any output.

    The sum of numbers that are finite is, at least of those narrower than float64.
    """
    return all(
        math.isfinite(array.sum(dtype=np.float64))
        for array in outputs.values()
        if array.dtype.kind == "f"
    )
