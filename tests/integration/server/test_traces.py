"""Traces of real servers, received as an OpenTelemetry collector receives them."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from testing.server import (
    free_port,
    installed,
    running,
    serving,
    simulated_models,
    wait_until,
)

pytest.importorskip("opentelemetry.proto", reason="needs requirements/otel.txt")

from tests.support.otlp import collecting

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
STAGES = ["decode", "encode", "infer", "queue"]
SLOW = {"base_ms": 200, "per_row_ms": 0, "input_shape": [2], "outputs": 2}
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
FAILS = """
def predict(model, batch):
    if any(row[0] < 0 for row in batch):
        raise RuntimeError("negative")
    return batch
"""
# https://www.w3.org/TR/trace-context/#traceparent-header
MALFORMED = [
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{TRACE.upper()}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE[1:]}-{SPAN}-01",
    f"00-{TRACE}-{SPAN}",
    f"00-{TRACE}-{SPAN}-0g",
    f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
    "x" * 5000,
    "",
]
SERVERS = {
    "event-loop": ((), {}),
    "gthread": (("--worker-class=gthread",), {}),
    "shared-model": ((), {"model_process": "shared"}),
}


@pytest.fixture
def collector():
    with collecting() as started:
        yield started


@contextlib.contextmanager
def _traced(tmp_path, collector, *args, **rest):
    folder = simulated_models(tmp_path, slow=SLOW)
    environ = collector.environ | rest.pop("environ", {})
    with serving(
        "--threads=8", *args, model_dir=folder, environ=environ, **rest
    ) as server:
        yield server


@pytest.fixture(name="traced", scope="module")
def _traced_once(tmp_path_factory):
    """Return a function that gives a server, started once, and its empty collector."""
    with contextlib.ExitStack() as stack:

        @cache
        def start(kind):
            collector = stack.enter_context(collecting())
            folder, (args, settings) = tmp_path_factory.mktemp("traced"), SERVERS[kind]
            running = _traced(folder, collector, *args, **settings)
            return stack.enter_context(running), collector

        def traced(kind="event-loop"):
            server, collector = start(kind)
            collector.spans.clear()
            return server, collector

        yield traced


def _stages(collector, request):
    """Wait until all stages of a request have arrived, and return them."""
    wait_until(lambda: sorted(collector.children_of(request)) == STAGES, 20)
    return collector.children_of(request)


def _predict_together(server, number):
    """Send requests together, each in a trace of its own, while a batch runs."""
    parents = [{"traceparent": f"00-{n:032x}-{SPAN}-01"} for n in range(1, number + 1)]
    with ThreadPoolExecutor(number) as pool:
        replies = pool.map(lambda each: server.predict([[1, 2]], each), parents)
        assert [each.status for each in replies] == [200] * number


@pytest.mark.parametrize("kind", SERVERS)
def test_a_request_has_a_span_for_each_stage_in_its_clients_trace(traced, kind):
    """The request's span is a child of the client's, and its stages follow in order."""
    server, collector = traced(kind)
    assert server.predict([[1, 2], [3, 4]], PARENT).status == 200
    (request,) = collector.wait_for("POST")
    assert (request.name, request.trace_id) == ("POST /predict", TRACE)
    assert request.parent_id == SPAN
    assert request.error is None
    assert request.attributes == {
        "http.request.method": "POST",
        "url.path": "/predict",
        "http.response.status_code": 200,
        "basket.model": "slow",
        "basket.version": "1",
        "basket.batch_rows": 2,
    }
    assert request.resource["service.name"] == "basket"
    stages = _stages(collector, request)
    times = [request.begin_ns]
    for name in ("decode", "queue", "infer", "encode"):
        times += [stages[name].begin_ns, stages[name].end_ns]
    assert sorted(times) == times
    assert times[0] == times[1]
    assert times[-1] <= request.end_ns
    infer = stages["infer"]
    assert infer.end_ns - infer.begin_ns >= 0.2e9


def test_a_path_is_text_and_names_of_spans_are_few(traced):
    """A path's bytes are UTF-8; neither zeros before a version nor case make a name."""
    server, collector = traced()
    body = b'{"instances": [[1, 2]]}'
    for path in ("v1/models/%C3%A9", "V1/Models/slow/versions/001"):
        server.request("POST", f"/{path}:predict", body)
    spans = collector.wait_for("POST", 2)
    assert sorted((each.name, each.attributes["url.path"]) for each in spans) == [
        ("POST", "/v1/models/é:predict"),
        (
            "POST /v1/models/slow/versions/1:predict",
            "/V1/Models/slow/versions/001:predict",
        ),
    ]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_batch_has_a_span_that_links_to_its_requests(traced, kind):
    """Each traced request is a link of one batch, which is a trace of its own."""
    server, collector = traced(kind)
    _predict_together(server, 6)
    requests = collector.wait_for("POST", 6)
    traces = {each.trace_id for each in requests}

    def linked():
        """Return the batches of these requests, and their links."""
        spans = [each for each in collector.spans if each.name.startswith("batch")]
        found = [each for each in spans if traces & {link[0] for link in each.links}]
        return found, [link for batch in found for link in batch.links]

    wait_until(lambda: len(linked()[1]) >= 6, 20)
    batches, links = linked()
    assert sorted(links) == sorted((each.trace_id, each.span_id) for each in requests)
    assert sum(each.attributes["basket.rows"] for each in batches) == 6
    assert max(each.attributes["basket.requests"] for each in batches) > 1
    for batch in batches:
        assert batch.parent_id == ""
        assert batch.trace_id not in traces
        assert batch.attributes["basket.model"] == "slow"
        infers = [
            stages["infer"]
            for stages in (_stages(collector, each) for each in requests)
            if (stages["infer"].trace_id) in {trace for trace, _ in batch.links}
        ]
        # Both are read from clocks of microseconds.
        assert all(abs(each.begin_ns - batch.begin_ns) < 20e6 for each in infers)


@pytest.mark.parametrize("number", ["", "1"], ids=["unsampled", "unnamed"])
def test_the_client_decides_whether_a_request_is_traced(traced, number):
    """A parent that is not sampled gives no span; without a parent there is one."""
    parent = {} if number else {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    server, collector = traced()
    assert server.predict([[1, 2]], parent).status == 200
    assert server.predict([[1, 2]], PARENT).status == 200
    spans = collector.wait_for("POST", 1 + len(number))
    assert len(spans) == 1 + len(number)
    unnamed = [each for each in spans if each.trace_id != TRACE]
    assert len(unnamed) == len(number)
    assert all(each.parent_id == "" for each in unnamed)


def test_the_sampler_of_the_environment_decides(tmp_path, collector):
    """With OTEL_TRACES_SAMPLER=always_off nothing is exported, batches neither."""
    environ = {"OTEL_TRACES_SAMPLER": "always_off"}
    with _traced(tmp_path, collector, environ=environ) as server:
        assert server.predict([[1, 2]], PARENT).status == 200
    assert collector.spans == []


def test_a_batch_is_sampled_if_one_of_its_requests_is(tmp_path, collector):
    """A sampler that samples no trace of the server's own does not drop batches."""
    environ = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    with _traced(tmp_path, collector, environ=environ) as server:
        assert server.predict([[1, 2]]).status == 200
        assert server.predict([[1, 2]], PARENT).status == 200
    (request,) = collector.wait_for("POST")
    (batch,) = collector.wait_for("batch")
    assert batch.links == [(TRACE, request.span_id)]


def test_the_service_name_of_the_environment_is_exported(tmp_path, collector):
    """OTEL_SERVICE_NAME names the service."""
    environ = {"OTEL_SERVICE_NAME": "shop-vision"}
    with _traced(tmp_path, collector, environ=environ) as server:
        server.predict([[1, 2]])
        (request,) = collector.wait_for("POST")
    assert request.resource["service.name"] == "shop-vision"


@pytest.mark.parametrize("kind", SERVERS)
def test_graceful_shutdown_exports_what_is_left(tmp_path, collector, kind):
    """Spans of answered requests arrive, although no export was due before SIGTERM."""
    args, settings = SERVERS[kind]
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "600000"}
    with _traced(tmp_path, collector, *args, environ=environ, **settings) as server:
        _predict_together(server, 3)
        assert collector.spans == []
        assert server.stop() == 0
    requests = collector.wait_for("POST", 3)
    assert all(sorted(collector.children_of(each)) == STAGES for each in requests)
    links = [link for batch in collector.wait_for("batch") for link in batch.links]
    assert len(links) == 3


def test_a_late_request_has_its_error_and_its_time_in_the_queue(tmp_path, collector):
    """A 504 has the text of its response, and the stages that it went through."""
    with _traced(tmp_path, collector) as server:
        late = server.predict([[1, 2]], {**PARENT, "X-Request-Timeout-Ms": "50"})
        assert late.status == 504
        (request,) = collector.wait_for("POST")
    assert request.attributes["http.response.status_code"] == 504
    assert request.error == late.json()["error"]
    assert sorted(collector.children_of(request)) == ["decode", "queue"]


def test_a_failed_batch_is_an_error(tmp_path, collector):
    """The batch of a request whose row the model fails on has the error."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "service.py").write_text(FAILS)
    environ = collector.environ
    with serving(
        "--threads=8", model_dir=str(tmp_path), environ=environ, user_code="on"
    ) as server:
        assert server.predict([[1.0]]).status == 200
        assert server.predict([[-1.0]], PARENT).status == 500
        (failed,) = (each for each in collector.wait_for("batch", 2) if each.error)
    assert [trace for trace, _ in failed.links] == [TRACE]
    assert "predict failed" in failed.error


def test_malformed_traceparents_begin_a_new_trace(traced):
    """Headers that the W3C text calls invalid are ignored; a later version is not."""
    server, collector = traced()
    for header in MALFORMED:
        assert server.predict([[1, 2]], {"traceparent": header}).status == 200
    requests = collector.wait_for("POST", len(MALFORMED))
    assert all(each.parent_id == "" for each in requests)
    assert not [each for each in requests if each.trace_id == TRACE]
    later = {"traceparent": f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"}
    assert server.predict([[1, 2]], later).status == 200
    newest = collector.wait_for("POST", len(MALFORMED) + 1)[-1]
    assert (newest.trace_id, newest.parent_id) == (TRACE, SPAN)


def test_an_unreachable_collector_fails_no_request(tmp_path, collector):
    """Without a collector requests are answered, and the server stops with 0."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with _traced(tmp_path, collector, environ=environ) as server:
        assert server.predict([[1, 2]]).status == 200
    assert collector.spans == []


def test_a_wrong_variable_refuses_the_start(tmp_path, collector):
    """Another exporter is refused before a worker is started, with a text."""
    folder = simulated_models(tmp_path, slow=SLOW)
    environ = {"OTEL_TRACES_EXPORTER": "zipkin"}
    with serving(
        model_dir=folder, environ=environ, ready=False, check_exit=False
    ) as server:
        assert server.process.wait(60) == 1
        text = server.log.read_text()
    assert "Basket does not start: OTEL_TRACES_EXPORTER='zipkin'" in text


def _exemplars(server):
    """Return the exemplars of the histograms' buckets, by the histograms' names."""
    reply = server.request("GET", "/metrics", headers=OPENMETRICS)
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
    return {
        each.name: [sample.exemplar for sample in each.samples if sample.exemplar]
        for each in text_string_to_metric_families(reply.body.decode())
    }


def test_exemplars_name_traces_where_one_process_serves(tmp_path, collector):
    """Under uvicorn, histograms in OpenMetrics's format name a traced request."""
    folder, port = simulated_models(tmp_path, slow=SLOW), free_port()
    command = [installed("uvicorn"), "wsgi:asgi", f"--port={port}"]
    rest = {"ready": False, "check_exit": False, "environ": collector.environ}
    with running(command, port, model_dir=folder, **rest) as server:
        server.wait_until_ready(0)
        assert server.predict([[1, 2]], PARENT).status == 200
        exemplars = _exemplars(server)
        plain = server.request("GET", "/metrics")
    assert b"trace_id" not in plain.body
    _assert_named(exemplars)


def _assert_named(exemplars):
    named = {}
    for name in ("request_seconds", "queue_seconds", "infer_seconds", "batch_rows"):
        (named[name],) = exemplars[f"basket_{name}"]
        assert named[name].labels == {"trace_id": TRACE}
    assert named["infer_seconds"].value >= 0.2
    assert named["batch_rows"].value == 1


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_exemplars_of_all_processes_are_in_any_scrape(
    tmp_path, collector, model_process
):
    """Under Gunicorn, whichever worker answers; those of one that died are gone."""
    settings = {"model_process": model_process}
    with _traced(tmp_path, collector, "--workers=2", **settings) as server:
        assert server.predict([[1, 2]], PARENT).status == 200
        last = ("basket_request_seconds", "basket_batch_rows")
        for _ in range(10):
            server.wait_until(lambda: all(map(_exemplars(server).get, last)), 60)
        _assert_named(_exemplars(server))
        assert {"basket_requests", "basket_model_problems"} <= set(_exemplars(server))
        for worker in server.workers():
            os.kill(worker, signal.SIGKILL)
        server.wait_until(lambda: _none_is_named(server), 60)


def _none_is_named(server):
    try:
        return not any(_exemplars(server).values())
    except OSError:  # a worker that was killed
        return False
