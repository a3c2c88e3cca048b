"""Basket's metrics in Ray's objects."""

from importlib.util import find_spec

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if find_spec("ray") is None:
    pytest.skip("ray is not installed: requirements/ray.txt", allow_module_level=True)

from app.ray_serve import metrics
from app.ray_serve.metrics import RayMetrics


class Recorded:
    """Stands for Ray's Counter and Gauge, outside a cluster."""

    values: dict[tuple, float]

    def __init__(self, name, description, tag_keys):
        assert description
        self.name, self.tag_keys = name, tag_keys

    def inc(self, value, tags):
        assert value > 0
        self.set(self.values.get(self._key(tags), 0) + value, tags)

    def set(self, value, tags):
        self.values[self._key(tags)] = value

    def _key(self, tags):
        assert tuple(tags) == self.tag_keys
        return type(self).__name__, self.name, *tags.values()


@pytest.fixture(name="values")
def _values(monkeypatch):
    """What Ray has been told, by kind, name and labels."""
    values = {}
    for kind in ("Counter", "Gauge"):
        fake = type(kind, (Recorded,), {"values": values})
        monkeypatch.setattr(metrics, kind, fake)
    return values


def test_counters_are_increased_by_what_was_added(values):
    """Ray's counter has the value of Basket's after each copy."""
    registry = CollectorRegistry()
    requests = Counter("basket_requests", "-", ("model",), registry=registry)
    copied = RayMetrics(registry.collect)
    requests.labels("a").inc(3)
    copied.copy()
    copied.copy()
    requests.labels("a").inc(2)
    copied.copy()
    assert values == {("Counter", "basket_requests_total", "a"): 5}


def test_histograms_keep_their_series_and_values(values):
    """Buckets, count and sum are those of /metrics, as gauges."""
    registry = CollectorRegistry()
    rows = Histogram("basket_rows", "-", ("m",), buckets=(1, 4), registry=registry)
    rows.labels("a").observe(2)
    rows.labels("a").observe(5)
    RayMetrics(registry.collect).copy()
    buckets = {key[-1]: value for key, value in values.items() if len(key) > 3}
    assert buckets == {"1.0": 0, "4.0": 1, "+Inf": 2}
    assert values["Gauge", "basket_rows_count", "a"] == 2
    assert values["Gauge", "basket_rows_sum", "a"] == 7


def test_series_that_is_gone_becomes_zero(values):
    """The problems of a model whose folder was removed end."""
    registry = CollectorRegistry()
    problems = Gauge("basket_model_problems", "-", ("m",), registry=registry)
    problems.labels("a").set(2)
    copied = RayMetrics(registry.collect)
    copied.copy()
    problems.remove("a")
    copied.copy()
    assert values == {("Gauge", "basket_model_problems", "a"): 0}


def test_other_series_are_left_out(values):
    """Ray has the process's memory and times of its own."""
    registry = CollectorRegistry()
    Gauge("process_cpu_seconds", "-", registry=registry).set(1)
    RayMetrics(registry.collect).copy()
    assert values == {}
