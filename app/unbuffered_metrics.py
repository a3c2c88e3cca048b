"""Metrics that are rare: of captures, the request log and promotions.

They are written at once: blocks and lines are written together, and drops are few.
"""

from prometheus_client import Counter

from app.prometheus_private import fix_process_id

fix_process_id()

_captured = Counter(
    "basket_captured",
    "Requests of the sample that is captured, by what became of them.",
    ("model", "result"),
)
_log_dropped = Counter(
    "basket_request_log_dropped", "Requests that are missing in the request log."
)
_promotions = Counter(
    "basket_promotions",
    "New versions by what became of them: proven, refused, promoted or sent back.",
    ("model", "version", "result"),
)


def captured(model: str, result: str, number: int) -> None:
    """Count what became of requests that were to be captured."""
    _captured.labels(model, result).inc(number)


def request_log_dropped(number: int) -> None:
    """Count requests that are missing in the request log."""
    _log_dropped.inc(number)


def promotion(model: str, version: int, result: str) -> None:
    """Count what became of a version."""
    _promotions.labels(model, str(version), result).inc()
