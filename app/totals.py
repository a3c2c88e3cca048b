"""Sums of the metrics of all processes, as numbers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any

from prometheus_client import Metric

# The stages of an answered request, in this order.
STAGES = ("decode", "queue", "infer", "encode")
_OK = str(HTTPStatus.OK.value)


@dataclass
class Totals:
    """The sums of one version since the start; failed rows and batches count, too.

    `buckets` are the requests that took at most so many seconds, by the series' `le`.
    `queue_rows` and `ceiling_rows` are values of now; without a ceiling 0.
    """

    by_status: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    failed_seconds: float = 0.0
    infer_seconds: float = 0.0
    rows: int = 0
    batches: int = 0
    queue_rows: int = 0
    ceiling_rows: int = 0
    buckets: dict[str, float] = field(default_factory=dict)
    stage_seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(STAGES, 0.0)
    )

    @property
    def succeeded(self) -> int:
        """The number of requests that were answered well."""
        return int(self.by_status.get(_OK, 0))

    @property
    def failed(self) -> int:
        """The number of all other requests."""
        return int(sum(self.by_status.values())) - self.succeeded


@dataclass
class Sums:
    """Totals by model and version, and the number of rejected requests by reason.

    Requests without a model have "" for both.
    """

    versions: dict[tuple[str, str], Totals] = field(
        default_factory=lambda: defaultdict(Totals)
    )
    rejected: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the sums as JSON values."""
        versions = [[*key, asdict(totals)] for key, totals in self.versions.items()]
        return {"versions": versions, "rejected": self.rejected}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Sums":
        """Return the sums of `to_json`."""
        versions = {
            (model, version): Totals(**totals)
            for model, version, totals in values["versions"]
        }
        return cls(versions, values["rejected"])


def summed(metrics: Iterable[Metric]) -> Sums:
    """Return the sums in what a registry has collected."""
    sums = Sums()
    for metric in metrics:
        for sample in metric.samples:
            labels = sample.labels
            if sample.name in _ADD:
                key = labels["model"], labels["version"]
                _ADD[sample.name](sums.versions[key], labels, sample.value)
            elif sample.name == "basket_rejected_total":
                sums.rejected[labels["reason"]] = sample.value
    return sums


def _add_status(totals: Totals, labels: Mapping[str, str], value: float) -> None:
    totals.by_status[labels["status"]] = value


def _add_bucket(totals: Totals, labels: Mapping[str, str], value: float) -> None:
    totals.buckets[labels["le"]] = value


def _add_stage(totals: Totals, labels: Mapping[str, str], value: float) -> None:
    totals.stage_seconds[labels["stage"]] = value


_Add = Callable[[Totals, Mapping[str, str], float], None]


def _sets(name: str, kind: Callable[[float], float] = float) -> _Add:
    return lambda totals, labels, value: setattr(totals, name, kind(value))


# By the name of a series.
_ADD: dict[str, _Add] = {
    "basket_requests_total": _add_status,
    "basket_request_seconds_bucket": _add_bucket,
    "basket_request_seconds_sum": _sets("seconds"),
    "basket_failed_seconds_total": _sets("failed_seconds"),
    "basket_stage_seconds_total": _add_stage,
    "basket_infer_seconds_sum": _sets("infer_seconds"),
    "basket_batch_rows_sum": _sets("rows", int),
    "basket_batch_rows_count": _sets("batches", int),
    "basket_queue_rows": _sets("queue_rows", int),
    "basket_batch_ceiling_rows": _sets("ceiling_rows", int),
}
