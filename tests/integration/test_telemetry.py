"""Metrics of processes of their own, with one process and with files for several."""

import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.prometheus_private import Collector
from testing.server import ROOT

MODES = ("single-process", "multiprocess")
every_mode = pytest.mark.parametrize("mode", MODES)


def run(program, mode, folder):
    """Run a program that imports metrics, and return what it prints."""
    environment = os.environ | {"PROMETHEUS_DISABLE_CREATED_SERIES": "True"}
    environment.pop("PROMETHEUS_MULTIPROC_DIR", None)
    if mode == "multiprocess":
        folder.mkdir(exist_ok=True)
        environment["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def ours(lines):
    """The lines of Basket's own series."""
    return [line for line in lines if "basket_" in line]


# All amounts are exact in binary, so that no sum depends on the order.
OBSERVE = """
from prometheus_client import Histogram, generate_latest
from app.prometheus_private import fix_process_id, observe_all, registry

fix_process_id()
groups = [[0.25, 0.5, 0.5, 0.75, 4.0, 4.5, 1024.0], [0.0, -1.5, 2.0], [float("inf")]]
for name in ("aggregated", "single"):
    family = Histogram(name, "Help.", ["model"], buckets=(0.5, 1, 2, 4))
    histogram, untouched = family.labels("m"), family.labels("untouched")
    for amounts in groups:
        if name == "aggregated":
            observe_all(histogram, amounts)
        else:
            for amount in amounts:
                histogram.observe(amount)
print(generate_latest(registry()).decode())
"""


@every_mode
def test_aggregated_write_equals_single_observations(mode, tmp_path):
    """Amounts observed at once give the same text as amounts observed one by one."""
    lines = run(OBSERVE, mode, tmp_path).splitlines()
    aggregated = [line for line in lines if "aggregated" in line]
    single = [line for line in lines if "single" in line]
    assert 'aggregated_bucket{le="4.0",model="m"} 8.0' in aggregated
    assert [line.replace("aggregated", "single") for line in aggregated] == single


RECORD = """
from app import telemetry, totals

def counted():
    if {each}:
        telemetry.flush()

metrics = telemetry.ModelMetrics("m", "1")
for number in range(40):
    for call, *arguments in [
        (metrics.rows_waiting, number),
        (
            telemetry.record,
            metrics.write_calls,
            (
                (200, 400, 503)[number % 3],
                number / 4,
                number / 8,
                [number / 2] * len(totals.STAGES),
                None,
            ),
        ),
        (
            telemetry.record,
            telemetry.write_calls_without_model,
            (404, number / 64, None, None, None),
        ),
        (telemetry.rejected, ("late", "queue_full")[number % 2]),
    ]:
        call(*arguments)
        counted()
print(telemetry.exposition({{"basket_model_problems": {{("m",): 1}}}}, "")[0].decode())
"""


@every_mode
def test_one_flush_equals_a_flush_after_each_record(mode, tmp_path):
    """The text of /metrics does not depend on how many records a flush writes."""
    # Sorted, as the order of multiprocess mode's files is that of the file system.
    once, each = (
        sorted(run(RECORD.format(each=each), mode, tmp_path / str(each)).splitlines())
        for each in (False, True)
    )
    assert 'basket_queue_seconds_count{model="m",version="1"} 40.0' in once
    assert 'basket_rejected_total{reason="late"} 20.0' in once
    assert ours(once) == ours(each)


def test_increment_in_multiprocess_mode_makes_no_system_call(tmp_path):
    """The process id is read once, and not at each increment."""
    program = """
import os, sys
from app.telemetry import ModelMetrics
metrics, calls = ModelMetrics("m", "1"), []
sys.setprofile(lambda frame, event, function: calls.append(function))
metrics.batch_reran()
sys.setprofile(None)
print(len(calls) > 0, os.getpid in calls)
"""
    assert run(program, "multiprocess", tmp_path).split() == ["True", "False"]


def test_process_that_exits_writes_its_records(tmp_path):
    """Records that no flush has written are written at an orderly exit."""
    program = """
from app import telemetry
metrics = telemetry.ModelMetrics("m", "1")
telemetry.record(metrics.write_calls, (200, 0.5, None, None, None))
"""
    run(program, "multiprocess", tmp_path)
    registry = CollectorRegistry()
    registry.register(Collector(None, path=str(tmp_path)))
    line = 'basket_requests_total{model="m",status="200",version="1"} 1.0'
    assert line in generate_latest(registry).decode()
