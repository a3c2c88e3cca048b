"""Counts what the two versions of a rollout answer."""

import math
from collections.abc import Sequence

import numpy as np

from app.call import Call
from app.engines.base import Tensors
from app.promotion.evidence import Evidence


class RolloutCounts:
    """Counts the calls of versions that are in a rollout."""

    def __init__(self, evidence: Evidence) -> None:
        """Store where they are counted."""
        self._evidence = evidence

    def ended(self, calls: Sequence[Call]) -> None:
        """Count calls that have ended."""
        for call in [each for each in calls if each.rollout is not None]:
            self._count(call)

    def _count(self, call: Call) -> None:
        rollout, version = call.rollout, call.model.version
        if not rollout.key or version not in (rollout.serving, rollout.candidate):
            return
        has_outputs = call.job is not None and call.job.outputs is not None
        self._evidence.count(
            rollout.key,
            rollout.phase,
            version == rollout.candidate,
            call.status,
            call.ended_at - call.arrived_at,
            has_outputs and not _is_finite(call.job.outputs),
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
