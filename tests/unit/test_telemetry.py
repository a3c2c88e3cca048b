"""Metrics: records that are written at a flush."""

import sys
import threading

from prometheus_client import REGISTRY

from app import telemetry
from app.prometheus_private import Pending
from app.telemetry import ModelMetrics
from app.totals import STAGES
from tests.support.metrics import count_call


def value(series, **labels):
    """A value that has been written, without a flush."""
    return REGISTRY.get_sample_value(series, labels) or 0


def test_exposition_contains_pending_records():
    """A request counted before a scrape of the same process is in its text."""
    metrics = ModelMetrics("scraped", "1")
    count_call(metrics, 200, 0.5, queue_s=0.25)
    metrics.rows_waiting(4)
    metrics.rows_waiting(3)
    lines = telemetry.exposition({}, "")[0].decode().splitlines()
    labels = 'model="scraped",version="1"'
    assert 'basket_requests_total{model="scraped",status="200",version="1"} 1.0' in (
        lines
    )
    assert f"basket_request_seconds_sum{{{labels}}} 0.5" in lines
    assert f"basket_queue_seconds_sum{{{labels}}} 0.25" in lines
    assert f"basket_queue_rows{{{labels}}} 3.0" in lines


def test_totals_contain_pending_records():
    """Requests counted before a call of totals are in its result."""
    metrics = ModelMetrics("summed", "1")
    count_call(metrics, 200, 0.5, stages_s=(1, 2, 3, 4))
    count_call(metrics, 503, 0.25)
    totals = telemetry.totals().versions["summed", "1"]
    assert (totals.succeeded, totals.failed) == (1, 1)
    assert (totals.seconds, totals.failed_seconds) == (0.75, 0.25)
    assert totals.stage_seconds == {"decode": 1, "queue": 2, "infer": 3, "encode": 4}


def test_request_without_model_is_counted_at_a_flush():
    """A request whose model is unknown is counted without a model's name."""
    labels = {"model": "", "version": ""}
    before = value("basket_requests_total", **labels, status="418")
    seconds = value("basket_request_seconds_sum", **labels)
    count_call(None, 418, 0.5)
    count_call(None, 418, 0.25)
    telemetry.flush()
    assert value("basket_requests_total", **labels, status="418") == before + 2
    assert value("basket_request_seconds_sum", **labels) == seconds + 0.75


def test_rejected_request_is_counted_by_reason_at_a_flush():
    """Each rejection increments the counter of its own reason."""
    before = value("basket_rejected_total", reason="tested")
    other = value("basket_rejected_total", reason="late")
    telemetry.rejected("tested")
    telemetry.rejected("tested")
    telemetry.flush()
    assert value("basket_rejected_total", reason="tested") == before + 2
    assert value("basket_rejected_total", reason="late") == other


def test_negative_seconds_count_as_zero_in_counters(caplog):
    """Negative seconds raise nothing, and neither reduce nor lose a counter's sum."""
    metrics = ModelMetrics("negative", "1")
    for seconds in (-1.0, 2.0):
        count_call(metrics, 500, seconds, seconds, [seconds] * len(STAGES))
        count_call(None, 404, -0.5)
    totals = telemetry.totals().versions["negative", "1"]
    assert totals.stage_seconds == dict.fromkeys(STAGES, 2.0)
    assert totals.failed_seconds == 2
    assert totals.failed == 2
    labels = {"model": "negative", "version": "1"}
    assert value("basket_queue_seconds_count", **labels) == 2
    assert not caplog.records


def test_concurrent_appends_during_flushes_lose_nothing():
    """Each record from any thread is written exactly once."""
    metrics = ModelMetrics("concurrent", "1")
    stages_s = [0.5] * len(STAGES)
    done = threading.Event()

    def count():
        for _ in range(25_000):
            count_call(metrics, 200, 0.5, 0.5, stages_s)

    def flush():
        while not done.is_set():
            telemetry.flush()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        counting = [threading.Thread(target=count) for _ in range(4)]
        flushing = [threading.Thread(target=flush) for _ in range(2)]
        for thread in (*counting, *flushing):
            thread.start()
        for thread in counting:
            thread.join()
        done.set()
        for thread in flushing:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    totals = telemetry.totals().versions["concurrent", "1"]
    assert totals.succeeded == 100_000
    assert totals.seconds == 50_000
    assert totals.stage_seconds == dict.fromkeys(STAGES, 50_000.0)
    labels = {"model": "concurrent", "version": "1"}
    assert value("basket_queue_seconds_count", **labels) == 100_000


def test_record_appended_during_a_flush_is_written_by_the_next():
    """A record that arrives while others are written is neither lost nor doubled."""
    written = []
    pending = Pending(max_records=10)

    def write(amounts):
        if amounts == [1]:
            pending.record(write, 2)
        written.append(amounts)

    pending.record(write, 1)
    for _ in range(3):
        pending.flush()
    assert written == [[1], [2]]


def test_flush_waits_for_records_that_another_flush_has_taken():
    """A scrape during a flush in another thread does not miss its records."""
    order, writing, may_write = [], threading.Event(), threading.Event()
    pending = Pending(max_records=10)

    def write(_):
        writing.set()
        may_write.wait()
        order.append("written")

    def flush_and_scrape():
        pending.flush()
        order.append("scraped")

    pending.record(write, 1)
    first = threading.Thread(target=pending.flush)
    first.start()
    writing.wait()
    second = threading.Thread(target=flush_and_scrape)
    second.start()
    second.join(timeout=0.05)
    may_write.set()
    first.join()
    second.join()
    assert order == ["written", "scraped"]


def test_pending_records_are_written_at_their_limit():
    """Without any flush, records are written when there are as many as the limit."""
    written = []
    pending = Pending(max_records=10)
    for number in range(25):
        pending.record(written.append, number)
    assert written == [list(range(10)), list(range(10, 20))]
    pending.flush()
    assert written[2:] == [[20, 21, 22, 23, 24]]


def test_requests_are_bounded_without_a_flush(monkeypatch):
    """Without a flush, records are written whenever there are a thousand."""
    telemetry.flush()
    # Threads that other tests left flush as well.
    monkeypatch.setattr(telemetry, "flush", lambda: None)
    metrics = ModelMetrics("bounded", "1")
    for number in range(5500):
        metrics.rows_waiting(number)
        count_call(metrics, 200, 0.5)
    labels = {"model": "bounded", "version": "1", "status": "200"}
    assert value("basket_requests_total", **labels) == 5000


def test_record_that_cannot_be_written_is_logged(caplog):
    """A write that fails does not raise, and the other records are written."""
    written = []
    pending = Pending(max_records=10)

    def fail(amounts):
        raise OSError(f"no space left for {amounts}")

    pending.record(fail, 1)
    pending.record(written.append, 2)
    pending.flush()
    pending.flush()
    assert written == [[2]]
    assert caplog.text.count("OSError: no space left for [1]") == 1
