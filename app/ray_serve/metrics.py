"""Basket's metrics as Ray's own, which each node exports for all of its replicas.

Ray puts `ray_` in front of each name and adds application, deployment and replica. It
has no way to hand over a histogram that is already counted, so the series of one are
gauges there, with the names and values that /metrics has; PromQL's rate and
histogram_quantile do not look at a type.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import Metric
from prometheus_client.samples import Sample
from ray.serve.metrics import Counter, Gauge

_INTERVAL_S = 1.0
_OURS = "basket_"
_COUNTER = "counter"
# When a series began, as a number of its own.
_CREATED = "_created"

_log = logging.getLogger(__name__)
# The name of a sample, and its labels.
_Series = tuple[str, tuple[tuple[str, str], ...]]


class RayMetrics:
    """Copies the process's metrics into Ray's, once a second."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Store what returns all metrics of this process."""
        self._collect = collect
        # Ray's objects, Counter or Gauge, by the sample's name.
        self._metrics: dict[str, Any] = {}
        self._last: dict[_Series, float] = {}
        # The error of the last copy.
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def copy(self) -> None:
        """Copy all values once; a series that is gone becomes 0."""
        seen: dict[_Series, float] = {}
        for family in self._collect():
            for sample in family.samples:
                if sample.name.startswith(_OURS) and not sample.name.endswith(_CREATED):
                    seen[_series(sample)] = sample.value
                    self._write(family, sample)
        # Gauges: no counter of a process goes.
        for name, labels in self._last.keys() - seen.keys():
            self._metrics[name].set(0, dict(labels))
        self._last = seen

    def _write(self, family: Metric, sample: Sample) -> None:
        is_counter = family.type == _COUNTER
        if sample.name not in self._metrics:
            kind: Any = Counter if is_counter else Gauge
            metric = kind(sample.name, family.documentation, tuple(sample.labels))
            self._metrics[sample.name] = metric
        metric = self._metrics[sample.name]
        if not is_counter:
            metric.set(sample.value, dict(sample.labels))
            return
        added = sample.value - self._last.get(_series(sample), 0)
        # Ray's refuses 0.
        if added > 0:
            metric.inc(added, dict(sample.labels))

    def _run(self) -> None:
        while True:
            problem = ""
            try:
                self.copy()
            except Exception as error:  # must not end the thread
                problem = repr(error)
            if problem and problem != self._problem:
                _log.error("metrics can't be handed to Ray: %s", problem)
            self._problem = problem
            time.sleep(_INTERVAL_S)


def _series(sample: Sample) -> _Series:
    return sample.name, tuple(sample.labels.items())
