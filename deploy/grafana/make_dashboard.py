"""Make basket.json, a Grafana dashboard: `python deploy/grafana/make_dashboard.py`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).with_name("basket.json")
# Grafana's grid has 24 columns.
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_SERVER = 'instance=~"$instance"'
_MODEL = f'{_SERVER},model=~"$model"'
_ROWS = "suffix: rows"


def _rate(series: str, *more: str) -> str:
    """Return a counter's growth a second."""
    return f"rate({series}{{{','.join((_MODEL, *more))}}}[$__rate_interval])"


def _now(series: str) -> str:
    """Return a gauge of models."""
    return f"{series}{{{_MODEL}}}"


def _ratio(of: str, above: str, below: str) -> str:
    """Return a quotient of two series' sums by a label."""
    return f"sum by ({of}) ({_rate(above)}) / sum by ({of}) ({_rate(below)})"


def _quantiles(histogram: str) -> dict[str, str]:
    """Return queries for the median and two high percentiles by their legends."""
    grown = f"sum by (le) ({_rate(histogram + '_bucket')})"
    return {
        f"p{round(100 * share)}": f"histogram_quantile({share}, {grown})"
        for share in (0.5, 0.95, 0.99)
    }


_ANSWERED = _rate("basket_requests_total", 'status="200"')
# Title, unit, explanation, and queries by their legends.
_PANELS: list[tuple[str, str, str, Mapping[str, str]]] = [
    (
        "Requests by status",
        "reqps",
        "Without a model, such as 401 and 404: only where all models are shown.",
        {"{{status}}": f"sum by (status) ({_rate('basket_requests_total')})"},
    ),
    (
        "Request time",
        "s",
        "From a request's arrival to its response, failures included.",
        _quantiles("basket_request_seconds"),
    ),
    (
        "Where the time goes",
        "s",
        "Mean time of answered requests in each stage.",
        {
            "{{stage}}": f"sum by (stage) ({_rate('basket_stage_seconds_total')})"
            f" / on () group_left () sum ({_ANSWERED})"
        },
    ),
    (
        "Batch size",
        _ROWS,
        "Mean rows in a batch, and the most that a batch may have now.",
        {
            "{{model}}": _ratio(
                "model", "basket_batch_rows_sum", "basket_batch_rows_count"
            ),
            "{{model}}: ceiling": "min by (model) "
            f"({_now('basket_batch_ceiling_rows')})",
        },
    ),
    (
        "Queue",
        _ROWS,
        "Rows that wait, and the most that may: beyond it requests get a 503.",
        {
            "{{model}}": f"sum by (model) ({_now('basket_queue_rows')})",
            "{{model}}: limit": f"sum by (model) ({_now('basket_queue_limit_rows')})",
        },
    ),
    (
        "Time in the queue",
        "s",
        "From enqueueing to the start of the batch.",
        _quantiles("basket_queue_seconds"),
    ),
    (
        "Busy share",
        "percentunit",
        "Share of time in which the model runs; each process that holds it adds 100 %.",
        {
            "{{instance}} {{model}}": "sum by (instance, model) "
            f"({_rate('basket_infer_seconds_sum')})"
        },
    ),
    (
        "Batch time",
        "s",
        "One batch in the engine.",
        _quantiles("basket_infer_seconds"),
    ),
    (
        "Refusals and failures",
        "reqps",
        "Requests without an answer of the model, by reason; of all models.",
        {
            "{{reason}}": "sum by (reason) "
            f"(rate(basket_rejected_total{{{_SERVER}}}[$__rate_interval]))"
        },
    ),
    (
        "Reruns",
        "ops",
        "Batches run again, because a larger one failed or did not fit into memory.",
        {"{{model}}": f"sum by (model) ({_rate('basket_reruns_total')})"},
    ),
    (
        "Versions by state",
        "none",
        "END is a version that failed to load.",
        {
            "{{model}} {{state}}": "sum by (model, state) "
            f"({_now('basket_model_versions')})"
        },
    ),
    (
        "Problems",
        "none",
        "What /readyz lists under problems.",
        {"{{instance}} {{model}}": _now("basket_model_problems")},
    ),
    (
        "Memory",
        "bytes",
        "Of all processes; pages that they share count once.",
        {"{{instance}}": f"basket_memory_bytes{{{_SERVER}}}"},
    ),
    (
        "GPU memory",
        "bytes",
        "What any process uses, and all that a GPU has.",
        {
            "{{instance}} GPU {{gpu}}": f"basket_gpu_memory_used_bytes{{{_SERVER}}}",
            "{{instance}} GPU {{gpu}}: all": f"basket_gpu_memory_bytes{{{_SERVER}}}",
        },
    ),
]


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "basket",
        "title": "Basket",
        "tags": ["basket"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                },
                _variable("instance", "Instance", "basket_model_versions"),
                _variable(
                    "model", "Model", 'basket_model_versions{instance=~"$instance"}'
                ),
            ]
        },
        "panels": [_panel(number, *values) for number, values in enumerate(_PANELS)],
    }


def _variable(name: str, label: str, series: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({series}, {name})", "refId": name},
        # At each change of the time range.
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panel(
    number: int, title: str, unit: str, description: str, queries: Mapping[str, str]
) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "title": title,
        "description": description,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {
            "x": column * _WIDTH,
            "y": row * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
            for at, (legend, expr) in enumerate(queries.items())
        ],
    }


def text() -> str:
    """Return the content of basket.json."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(text())
