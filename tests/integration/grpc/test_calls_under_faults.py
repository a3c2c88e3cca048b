"""gRPC calls at deadlines, cancellations, stops and crashes of a real server."""

import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient import grpc as triton

from app.protocols.grpc_messages import message_class
from testing.grpc_messages import INFER, METHODS, PREDICT, output_of, request_of
from testing.server import metric_sum, simulated_models, wait_for_metric, wait_until
from tests.support.grpc_calls import (
    ECHO,
    OWN_CONNECTION,
    SLOW,
    SLOW_MS,
    failure,
    ignore,
    infer,
    rows,
    serving_grpc,
    tensor,
    triton_client,
)

CALLS = 50
RUN_ROWS = "basket_batch_rows_sum"
# Why rows past a deadline are dropped: gRPC cancels their calls by itself, too.
LATE = ("late", "abandoned")
# Longer than a stop takes; warm-up takes it twice.
LONG_MS = 4_000


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return simulated_models(tmp_path / "models", m=SLOW)


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory):
    """A server for tests that leave it as it was, and its address.

    It has the same model, and `alone`, which runs one row at a time.
    """
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, m=SLOW, alone=SLOW)
    (folder / "alone" / "basket.toml").write_text("max_batch_size = 1\n")
    with serving_grpc(model_dir=models) as kept:
        yield kept


@pytest.fixture(name="address")
def _address(kept):
    return kept[1]


@pytest.fixture(name="stuck", scope="module")
def _stuck_server(tmp_path_factory):
    """A server whose batches, of one row, take long, and its address."""
    models = _stuck(tmp_path_factory.mktemp("models"))
    limits = {"max_batch_size": "1", "max_enqueued_batches": "3", "check_exit": False}
    with serving_grpc(model_dir=models, **limits) as stuck:
        yield stuck


def _stuck(tmp_path):
    """Write a model whose batches take long."""
    return simulated_models(tmp_path / "stuck", m={**ECHO, "base_ms": LONG_MS})


def _one_at_a_time(folder, tmp_path):
    (tmp_path / "models" / "m" / "basket.toml").write_text("max_batch_size = 1\n")
    return folder


def test_rows_past_a_calls_own_deadline_do_not_run(tmp_path):
    """Rows that wait for a batch until their call's deadline are dropped from it."""
    models = simulated_models(tmp_path / "models", m=ECHO)
    full = {"max_batch_size": "9", "batch_timeout_micros": "60000000"}
    with (
        serving_grpc(model_dir=models, **full) as (server, address),
        grpc.insecure_channel(address) as channel,
    ):
        reasons = [f'basket_rejected_total{{reason="{r}"}}' for r in LATE]
        for count, method in enumerate(METHODS, 1):
            before = metric_sum(server, RUN_ROWS)
            call = channel.unary_unary(method)
            late = [call.future(_row(method, number), timeout=1) for number in range(8)]
            assert {each.code().name for each in late} == {"DEADLINE_EXCEEDED"}
            dropped = 8 * count
            wait_until(lambda n=dropped: sum(map(server.metric, reasons)) == n, 20)
            # With them, it fills the batch.
            assert output_of(method, call(_row(method, 9)))[0, 0] == 9
            wait_for_metric(server, RUN_ROWS, before + 1)


# Ways to send a deadline in ms: the options of a call, and parameters of its message.
DEADLINES = {
    "own": lambda ms: ({"timeout": ms / 1000}, {}),
    "metadata": lambda ms: ({"metadata": [("x-request-timeout-ms", str(ms))]}, {}),
    "parameter": lambda ms: ({}, {"timeout": 1000 * ms}),
}


@pytest.mark.parametrize("kind", DEADLINES)
def test_call_that_is_late_is_deadline_exceeded(address, kind):
    """A call that an idle model answers too late is DEADLINE_EXCEEDED."""
    with grpc.insecure_channel(address) as channel:
        options, parameters = DEADLINES[kind](SLOW_MS // 3)
        sent = _row(INFER, 1, **parameters)
        code, _ = failure(channel.unary_unary(INFER), sent, **options)
        assert code == "DEADLINE_EXCEEDED"
        options, parameters = DEADLINES[kind](100 * SLOW_MS)
        sent = _row(INFER, 2, **parameters)
        answer = channel.unary_unary(INFER)(sent, **options)
        assert output_of(INFER, answer)[0, 0] == 2


def test_malformed_deadline_in_metadata_is_invalid(address):
    """X-Request-Timeout-Ms that is no number is INVALID_ARGUMENT, and is named."""
    with triton_client(address) as one:
        code, text = failure(infer, one, 1, headers={"x-request-timeout-ms": "x"})
        assert (code, "X-Request-Timeout-Ms" in text) == ("INVALID_ARGUMENT", True)


def test_call_that_would_be_late_is_unavailable_with_a_pushback(stuck):
    """Admission control refuses a call whose deadline its rows can't meet."""
    server, address = stuck
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(INFER)
        # From now on the time of a batch is known.
        call(_row(INFER, 1))
        # One runs, and two wait.
        waiting = [call.future(_row(INFER, number)) for number in range(3)]
        wait_until(lambda: metric_sum(server, "basket_queue_rows") == 2, 20)
        for kind, deadline in DEADLINES.items():
            options, parameters = deadline(2 * LONG_MS)
            refused = call.future(_row(INFER, 1, **parameters), **options)
            assert (kind, refused.code().name) == (kind, "UNAVAILABLE")
            assert _pushback_ms(refused) >= 1000
        assert server.metric('basket_rejected_total{reason="deadline"}') == 3
        for each in waiting:
            each.cancel()


def _row(method, first, **parameters):
    return request_of(method, rows(first), **parameters)


def _pushback_ms(call):
    """Return when a refused call may be sent again, which two headers say alike."""
    trailing = dict(call.trailing_metadata())
    found = int(trailing["grpc-retry-pushback-ms"])
    assert found == 1000 * int(trailing["retry-after"])
    return found


def _futures(method):
    """Return what begins a call in a context, and returns what cancels it."""

    def begin(address, number, stack):
        channel = stack.enter_context(grpc.insecure_channel(address))
        return (
            channel.unary_unary(method)
            .future(_row(method, number, model="alone"))
            .cancel
        )

    return begin


def _begin_by_client(address, number, stack):
    one = stack.enter_context(triton_client(address))
    return one.async_infer("alone", [tensor(rows(number))], ignore).cancel


def _begin_stream(address, number, stack):
    one = stack.enter_context(triton_client(address))
    one.start_stream(ignore)
    one.async_stream_infer("alone", [tensor(rows(number))])
    return partial(one.stop_stream, cancel_requests=True)


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(_begin_by_client, id="async_infer"),
        pytest.param(_futures(PREDICT), id="Predict"),
        pytest.param(_begin_stream, id="stream"),
    ],
)
def test_canceled_calls_are_dropped_before_they_run(kept, begin):
    """Rows of calls that the client cancels are not computed."""
    server, address = kept
    dropped = 'basket_rejected_total{reason="abandoned"}'
    ran = 'basket_infer_seconds_count{model="alone",version="1"}'
    before = server.metric(dropped), server.metric(ran)
    with contextlib.ExitStack() as stack:
        cancels = [begin(address, number, stack) for number in range(10)]
        wait_until(lambda: metric_sum(server, "basket_queue_rows") >= 8, 20)
        # At once: what they cancel takes a while to say so, and rows run meanwhile.
        with ThreadPoolExecutor(len(cancels)) as threads:
            list(threads.map(lambda cancel: cancel(), cancels))
        ran_until_canceled = server.metric(ran)
        wait_for_metric(server, "basket_queue_rows", 0)
        with triton_client(address) as one:
            assert infer(one, 3, model="alone").as_numpy("output")[0, 0] == 3
    # The one that runs, the next if its cancellation is on its way, and the last.
    assert server.metric(ran) <= ran_until_canceled + 3

    def ended():
        """Return the count of calls; the one that ran while it was canceled is two."""
        return server.metric(dropped) + server.metric(ran) - sum(before)

    wait_until(lambda: ended() > len(cancels), 20, ended)
    assert server.metric(dropped) > before[0]


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_sigterm_answers_all_calls_in_flight(folder, tmp_path, process):
    """SIGTERM with 50 calls in flight: all 50 are answered, and the server exits."""
    models = _one_at_a_time(folder, tmp_path)
    (tmp_path / "models" / "m" / "1" / "simulated.json").write_text(
        '{"base_ms": 100, "input_shape": [4], "outputs": 4}'
    )
    options = {"max_enqueued_batches": "64", "model_process": process}
    with (
        serving_grpc(model_dir=models, **options) as (server, address),
        grpc.insecure_channel(address) as channel,
    ):
        methods = METHODS * (CALLS // 2)
        asked = [
            channel.unary_unary(method).future(_row(method, number))
            for number, method in enumerate(methods)
        ]

        def is_accepted():
            done = sum(each.done() for each in asked)
            # One more is running.
            return done + metric_sum(server, "basket_queue_rows") >= CALLS - 1

        wait_until(is_accepted, 20)
        assert server.stop() == 0
        for number, each in enumerate(asked):
            assert output_of(methods[number], each.result())[0, 0] == number


def test_sigterm_waits_for_a_load(tmp_path):
    """A call that loads a model at SIGTERM gets its answer."""
    models = simulated_models(tmp_path / "models", m={**ECHO, "base_ms": 1000})
    admin = {"authorization": "Bearer admin"}
    with (
        serving_grpc(model_dir=models, admin_keys="admin") as (server, address),
        triton_client(address) as one,
        ThreadPoolExecutor(1) as threads,
    ):
        one.unload_model("m", headers=admin)
        loading = threads.submit(one.load_model, "m", headers=admin)

        def is_loading():
            return server.log.read_text().count("loading model m") == 2

        server.wait_until(is_loading, 20)
        server.process.send_signal(signal.SIGTERM)
        assert loading.result() is None
        assert server.process.wait(20) == 0


def test_sigterm_tells_those_who_watch_an_idle_server(folder):
    """At SIGTERM Watch gets NOT_SERVING before an idle server ends the call."""
    with (
        serving_grpc(model_dir=folder) as (server, address),
        grpc.insecure_channel(address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert server.process.wait(20) == 0


def test_calls_that_exceed_the_graceful_timeout_are_unavailable(tmp_path):
    """A call that the model never answers ends as UNAVAILABLE in time."""
    models, args = _stuck(tmp_path), ["--graceful-timeout=3"]
    with (
        serving_grpc(*args, model_dir=models, max_batch_size="1") as (server, address),
        triton_client(address) as one,
        ThreadPoolExecutor(2) as threads,
    ):
        asked = [threads.submit(failure, infer, one, number) for number in range(2)]
        # One runs, and one waits.
        wait_until(lambda: metric_sum(server, "basket_queue_rows") == 1, 20)
        server.process.send_signal(signal.SIGTERM)
        for each in asked:
            assert each.result()[0] == "UNAVAILABLE"
        server.process.wait(20)


def test_full_queue_is_unavailable_with_a_pushback(stuck):
    """A full queue answers at once, and says when to try again."""
    server, address = stuck
    wait_for_metric(server, "basket_queue_rows", 0)
    with grpc.insecure_channel(address) as channel:
        calls = [
            (method, channel.unary_unary(method).future(_row(method, number)))
            for number in range(7)
            for method in METHODS
        ]
        refused = []

        def is_refused():
            refused[:] = [each for each in calls if each[1].done()]
            return len(refused) >= 8

        wait_until(is_refused, 20)
        assert {method for method, _ in refused} == set(METHODS)
        for _, each in refused:
            assert each.code().name == "UNAVAILABLE"
            assert _pushback_ms(each) >= 1000
        for _, each in calls:
            each.cancel()


def test_model_that_is_not_ready_is_unavailable_with_a_pushback(tmp_path):
    """A call of a model that can't be loaded says when to try again."""
    models = simulated_models(tmp_path / "models", m={"outputs": 0})
    with (
        serving_grpc(ready=False, model_dir=models) as (server, address),
        grpc.insecure_channel(address) as channel,
    ):
        server.wait_until_loaded()
        for method in METHODS:
            refused = channel.unary_unary(method).future(_row(method, 1))
            assert (method, refused.code().name) == (method, "UNAVAILABLE")
            assert _pushback_ms(refused) >= 1000


@pytest.mark.parametrize("method", [INFER, PREDICT])
def test_large_messages_have_the_memory_of_large_bodies(tmp_path, method):
    """Large calls in flight that exceed 16 messages of the limit are UNAVAILABLE.

    So are small ones, of which one value stands for a large tensor.
    """
    wide = {"base_ms": LONG_MS, "input_shape": [200_000], "outputs": 1}
    models = simulated_models(tmp_path / "models", m=wide)
    limits = {
        **{"max_body_bytes": "1000000", "max_batch_size": "1"},
        "max_enqueued_batches": "64",
    }
    with (
        serving_grpc(model_dir=models, check_exit=False, **limits) as (_, address),
        grpc.insecure_channel(address) as channel,
    ):
        row = np.ones((1, 200_000), np.float32)
        message = request_of(INFER, row) if method == INFER else one_value(row.shape)
        call = channel.unary_unary(method)
        # Beside the rows, which are 0.8 MB, a message is held only while it is read.
        calls = [call.future(message) for _ in range(24)]
        wait_until(lambda: any(each.done() for each in calls), 20)
        (refused, *_) = [each for each in calls if each.done()]
        text = "large bodies in memory may have 16000000 bytes in all"
        assert (refused.code().name, refused.details()) == ("UNAVAILABLE", text)
        for each in calls:
            each.cancel()


def one_value(shape):
    """Return a PredictRequest whose only value stands for all."""
    message = message_class("tensorflow.serving.PredictRequest")()
    message.model_spec.name = "m"
    given = message.inputs["input"]
    given.dtype = 1
    given.float_val.append(1)
    for size in shape:
        given.tensor_shape.dim.add(size=size)
    return message.SerializeToString()


@pytest.mark.parametrize("process", ["worker", "shared"])
def test_a_killed_worker_fails_only_its_own_calls(tmp_path, process):
    """Other workers keep serving after kill -9 of one, and the arbiter restarts it."""
    models = simulated_models(tmp_path / "models", m=ECHO)
    options = {"model_dir": models, "model_process": process}
    with serving_grpc("--workers=2", **options) as (server, address):
        with triton_client(address) as one:
            assert infer(one, 1).as_numpy("output")[0, 0] == 1
        ends = metric_sum(server, "basket_requests_total")
        assert ends >= 0
        before = server.workers()
        os.kill(before[-1], signal.SIGKILL)
        failed, answered = [], []
        over = threading.Event()

        def ask():
            while not over.is_set():
                # Clients that share connections wait before they connect again.
                with triton_client(address, channel_args=OWN_CONNECTION) as one:
                    try:
                        answered.append(infer(one, 7).as_numpy("output")[0, 0])
                    except triton.InferenceServerException as error:
                        failed.append(str(error))

        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(ask)
            server.wait_until(
                lambda: (
                    len(server.workers()) >= len(before)
                    and set(server.workers()) != set(before)
                    and len(answered) > 100
                ),
                60,
            )
            over.set()
        assert set(answered) == {7}
        # Each client at most once: its call, or a connection that was not accepted yet.
        assert len(failed) <= 4, failed


def test_reload_refuses_at_most_the_calls_of_its_moment(tmp_path):
    """HUP replaces the workers under load: a client's next call is answered.

    gRPC refuses calls that reach a server between the begin of its stop and the moment
    in which their client hears of it.
    """
    models = simulated_models(tmp_path / "models", m=ECHO)
    with serving_grpc("--workers=2", model_dir=models) as (server, address):
        before = set(server.workers())
        over, failed, answered = threading.Event(), [], []

        def ask():
            with triton_client(address) as one:
                while not over.is_set():
                    try:
                        answered.append(infer(one, 7).as_numpy("output")[0, 0])
                    except triton.InferenceServerException as error:
                        failed.append(error.status())

        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(ask)
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda: not before & set(server.workers()), 60)
            over.set()
        assert set(failed) <= {"StatusCode.CANCELLED", "StatusCode.UNAVAILABLE"}
        assert len(failed) <= 8
        assert len(answered) > 50


def test_large_messages_have_the_limit_of_bodies(tmp_path):
    """A message above BASKET_MAX_BODY_BYTES is RESOURCE_EXHAUSTED, smaller ones fit."""
    wide = {"base_ms": 0, "input_shape": [250_000], "outputs": 1}
    models = simulated_models(tmp_path / "models", m=wide)
    limit = str(5_000_000)
    with (
        serving_grpc(model_dir=models, max_body_bytes=limit) as (_, address),
        triton_client(address) as one,
    ):
        fits = np.ones((4, 250_000), np.float32)
        result = one.infer("m", [tensor(fits)])
        assert result.as_numpy("output").shape == (4, 1)
        code, text = failure(one.infer, "m", [tensor(np.tile(fits, (2, 1)))])
        assert code == "RESOURCE_EXHAUSTED"
        assert "larger than max" in text
        for algorithm in ("gzip", "deflate"):
            zeros = [tensor(np.zeros((8, 250_000), np.float32))]
            code, _ = failure(one.infer, "m", zeros, compression_algorithm=algorithm)
            assert code == "RESOURCE_EXHAUSTED"
            result = one.infer("m", [tensor(fits)], compression_algorithm=algorithm)
            assert result.as_numpy("output").shape == (4, 1)
