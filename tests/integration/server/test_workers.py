"""Several workers, each with a model of its own, behind one address."""

import pytest

from testing.clients import Client, in_parallel
from testing.server import metric_sum, serving, simulated_models, wait_for_metric
from tests.support import worker_classes

QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [8], "outputs": 8}


@pytest.fixture(name="lone", scope="module")
def _lone(tmp_path_factory):
    """A server of one worker with one thread."""
    folder = simulated_models(tmp_path_factory.mktemp("models"), quick=QUICK)
    with serving("--threads=1", model_dir=folder) as server:
        yield server


def test_metrics_sum_over_four_workers(tmp_path):
    """With --workers=4 all answer, and /metrics counts the requests of all."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving("--threads=8", "--workers=4", model_dir=folder) as server:

        def work(place):
            for number in range(25):
                # A new connection each time, so that the kernel spreads them.
                with Client(server.port) as client:
                    row = [float(place * 25 + number)] * 8
                    client.send([row])
                    assert client.receive().json() == {"predictions": [row]}

        in_parallel(work, 16)
        wait_for_metric(server, "basket_requests_total", 400)
        wait_for_metric(server, "basket_batch_rows_sum", 400)
        wait_for_metric(server, "basket_request_seconds_count", 400)
        wait_for_metric(server, "basket_queue_seconds_count", 400)


def test_gpu_settings_without_a_gpu_are_one_line_each(tmp_path):
    """Without a GPU each GPU setting logs one line, and the server runs."""
    folder = simulated_models(tmp_path, quick=QUICK)
    gpus = {"gpus": "0,1", "gpu_memory_fraction": "0.4"}
    with serving("--workers=3", model_dir=folder, **gpus) as server:
        assert server.predict([[1.0] * 8]).status == 200
        log = server.log.read_text()
        assert log.count("no GPU: BASKET_GPUS has no effect") == 1
        assert log.count("no GPU: BASKET_GPU_MEMORY_FRACTION has no effect") == 1


@pytest.mark.parametrize(
    ("args", "settings", "what", "option"),
    [
        (("--worker-connections=40",), {}, "40 connections", "--worker-connections"),
        (
            ("--worker-connections=20", "--workers=2"),
            {"model_process": "shared"},
            *("40 connections", "--worker-connections"),
        ),
        (("--worker-class=sync",), {}, "1 threads", "--threads"),
        (("--worker-class=gthread", "--threads=20"), {}, "20 threads", "--threads"),
        (
            ("--worker-class=gthread", "--threads=8", "--workers=2"),
            {"model_process": "shared"},
            *("16 threads", "--threads"),
        ),
        pytest.param(
            ("--worker-class=gevent", "--worker-connections=40"),
            {},
            *("40 connections", "--worker-connections"),
            marks=worker_classes.GEVENT,
        ),
    ],
    ids=["event-loop", "shared", "sync", "gthread", "shared-gthread", "gevent"],
)
def test_start_warns_of_too_few_requests_for_a_batch(
    tmp_path, args, settings, what, option
):
    """A server with fewer requests at a time than max_batch_size names the limit."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving(*args, model_dir=folder, **settings) as server:
        line = f"{what} can't fill a batch of 64 with single rows: {option}=64 or more"
        assert line in server.log.read_text()


def test_threads_do_not_limit_a_batch(lone):
    """One thread and 1,000 connections fill a batch of 64, and no line is logged."""
    assert "can't fill a batch" not in lone.log.read_text()


def test_two_servers_do_not_disturb_each_other(lone, tmp_path):
    """Two servers on one machine count their own requests only."""
    folder = simulated_models(tmp_path, quick=QUICK)
    with serving("--threads=2", model_dir=folder) as other:
        lone.predict([[1.0] * 8])
        assert metric_sum(lone, "basket_requests_total") == 1
        assert metric_sum(other, "basket_requests_total") == 0
