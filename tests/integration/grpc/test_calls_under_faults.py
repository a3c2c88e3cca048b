"""gRPC calls at deadlines, cancellations, stops and crashes of a real server."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton

from testing.server import metric_sum, simulated_models, wait_for_metric, wait_until
from tests.support.grpc_calls import (
    ECHO,
    SLOW,
    failure,
    ignore,
    infer,
    rows,
    serving_grpc,
    tensor,
    triton_client,
)

CALLS = 50
# Longer than a stop takes; warm-up takes it twice.
LONG_MS = 4_000


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return simulated_models(tmp_path / "models", m=SLOW)


def _stuck(tmp_path):
    """Write a model whose batches take long."""
    return simulated_models(tmp_path / "stuck", m={**ECHO, "base_ms": LONG_MS})


def _one_at_a_time(folder, tmp_path):
    (tmp_path / "models" / "m" / "basket.toml").write_text("max_batch_size = 1\n")
    return folder


def test_a_calls_own_deadline_ends_it(folder):
    """A call that can't be answered by its deadline is DEADLINE_EXCEEDED."""
    with serving_grpc(model_dir=folder) as (_, address), triton_client(address) as one:
        code, _ = failure(infer, one, 1, client_timeout=0.05)
        assert code == "DEADLINE_EXCEEDED"
        assert infer(one, 2, client_timeout=20).as_numpy("output")[0, 0] == 2


def test_deadlines_of_metadata_and_parameters_are_kept(folder):
    """X-Request-Timeout-Ms and V2's timeout end a call as they end a request."""
    with serving_grpc(model_dir=folder) as (_, address), triton_client(address) as one:
        code, text = failure(infer, one, 1, headers={"x-request-timeout-ms": "50"})
        assert code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
        code, text = failure(infer, one, 1, timeout=50_000)
        assert code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
        code, text = failure(infer, one, 1, headers={"x-request-timeout-ms": "x"})
        assert (code, "X-Request-Timeout-Ms" in text) == ("INVALID_ARGUMENT", True)


def test_canceled_calls_are_dropped_before_they_run(folder, tmp_path):
    """Rows of calls that the client cancels are not computed."""
    models = _one_at_a_time(folder, tmp_path)
    with serving_grpc(model_dir=models) as (server, address):
        with triton_client(address) as one:
            calls = [one.async_infer("m", [tensor(rows(1))], ignore) for _ in range(10)]
            wait_until(lambda: metric_sum(server, "basket_queue_rows") >= 8, 20)
            for call in calls:
                call.cancel()
            wait_for_metric(server, "basket_queue_rows", 0)
            assert infer(one, 3).as_numpy("output")[0, 0] == 3
        dropped = 'basket_rejected_total{reason="abandoned"}'
        wait_until(lambda: server.metric(dropped) >= 8, 20)
        assert metric_sum(server, "basket_infer_seconds_count") <= 3


def test_sigterm_answers_all_calls_in_flight(folder, tmp_path):
    """SIGTERM with 50 calls in flight: all 50 are answered, and the server exits."""
    models = _one_at_a_time(folder, tmp_path)
    (tmp_path / "models" / "m" / "1" / "simulated.json").write_text(
        '{"base_ms": 100, "input_shape": [4], "outputs": 4}'
    )
    with (
        serving_grpc(model_dir=models, max_enqueued_batches="64") as (server, address),
        triton_client(address) as one,
        ThreadPoolExecutor(CALLS) as threads,
    ):
        asked = [threads.submit(infer, one, number) for number in range(CALLS)]

        def is_accepted():
            done = sum(each.done() for each in asked)
            # One more is running.
            return done + metric_sum(server, "basket_queue_rows") >= CALLS - 1

        wait_until(is_accepted, 20)
        assert server.stop() == 0
        for number, each in enumerate(asked):
            assert each.result().as_numpy("output")[0, 0] == number


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


def test_full_queue_is_unavailable_with_a_pushback(tmp_path):
    """A full queue answers at once, and says when to try again."""
    models = _stuck(tmp_path)
    limits = {"max_batch_size": "1", "max_enqueued_batches": "2"}
    with serving_grpc(model_dir=models, check_exit=False, **limits) as (_, address):
        stub = triton.service_pb2_grpc.GRPCInferenceServiceStub(
            grpc.insecure_channel(address)
        )
        request = triton.service_pb2.ModelInferRequest(model_name="m")
        request.inputs.add(name="input", datatype="FP32", shape=[1, 4])
        request.raw_input_contents.append(bytes(16))
        calls = [stub.ModelInfer.future(request) for _ in range(12)]
        refused = []

        def is_refused():
            refused[:] = [each for each in calls if each.done()]
            return len(refused) >= 8

        wait_until(is_refused, 20)
        assert {each.code().name for each in refused} == {"UNAVAILABLE"}
        trailing = dict(refused[0].trailing_metadata())
        assert int(trailing["grpc-retry-pushback-ms"]) >= 1000
        assert int(trailing["retry-after"]) >= 1
        for each in calls:
            each.cancel()


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

        # Clients of a process share connections, and wait before they connect again.
        own = [("grpc.use_local_subchannel_pool", 1)]

        def ask():
            while not over.is_set():
                with triton_client(address, channel_args=own) as one:
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
