"""Batching on real servers with the simulated device."""

from contextlib import contextmanager

import numpy as np
import pytest

from testing.clients import Client, at_once, in_parallel
from testing.server import metric_sum, serving, simulated_models, wait_until

SLOW = {"base_ms": 300, "per_row_ms": 0, "input_shape": [64], "outputs": 10}
QUICK = {"base_ms": 1, "per_row_ms": 0, "input_shape": [8], "outputs": 8}
# Slow enough for a second client to connect before the rows of a first have run.
STEADY = {**QUICK, "base_ms": 50}
MODELS = {
    **{"slow": SLOW, "steady": STEADY},
    **dict.fromkeys(("quick", "waiting", "small"), QUICK),
}
SETTINGS = {
    "waiting": "batch_timeout_micros = 500000",
    "small": "max_batch_size = 8",
    "steady": "max_batch_size = 1",
}


@pytest.fixture(name="server", scope="module")
def _server(tmp_path_factory):
    """A server of models with batching limits of their own."""
    folder = tmp_path_factory.mktemp("models")
    models = simulated_models(folder, **MODELS)
    for name, setting in SETTINGS.items():
        (folder / name / "basket.toml").write_text(setting)
    with serving("--threads=64", model_dir=models) as server:
        yield server


def _value(server, name, model):
    """Return a metric of a model."""
    return server.metric(f'{name}{{model="{model}",version="1"}}')


def _rows(count, width=64):
    return [[float(n)] * width for n in range(count)]


def test_twenty_clients_at_once_share_batches(server):
    """The rows of twenty concurrent requests run in a few batches."""
    replies, _ = at_once(server.port, _rows(20), "slow")
    assert [reply.status for reply in replies] == [200] * 20
    for n, reply in enumerate(replies):
        assert reply.json() == {"predictions": [[float(n)] * 10]}
    assert _value(server, "basket_batch_rows_sum", "slow") == 20
    # Two, unless the machine is too busy to send all during the first batch.
    assert _value(server, "basket_batch_rows_count", "slow") < 10


@pytest.mark.parametrize("count", ["1", "20"], ids=["one thread", "20 threads"])
def test_naive_api_runs_one_request_at_a_time(tmp_path, count):
    """Without batching, the last of twenty clients waits for twenty inferences."""
    folder = simulated_models(tmp_path, slow=SLOW)
    with serving(f"--threads={count}", model_dir=folder, batching="off") as server:
        replies, took_s = at_once(server.port, _rows(20))
        assert [reply.status for reply in replies] == [200] * 20
        assert took_s >= 20 * 0.3
        assert {reply.headers["X-Batch-Size"] for reply in replies} == {"1"}
        assert metric_sum(server, "basket_batch_rows_sum") == 20


def test_single_request_waits_for_a_fixed_batch_timeout(server):
    """A single request waits for the whole batch timeout before it runs."""
    _, took_s = at_once(server.port, _rows(1, width=8), "waiting")
    assert took_s >= 0.5


def test_ten_thousand_distinct_rows_return_to_their_clients(server):
    """Each of 64 clients gets its own rows back, bit for bit, and none is lost."""
    clients, requests = 64, 160
    rows = np.random.default_rng(1).standard_normal((clients, requests, 8), np.float32)
    answered = np.zeros_like(rows)

    def work(place):
        with Client(server.port, model="quick") as client:
            for number in range(requests):
                client.send([rows[place, number].tolist()])
                reply = client.receive()
                assert reply.status == 200, reply.body
                answered[place, number] = reply.json()["predictions"][0]

    in_parallel(work, clients)
    sent = clients * requests
    assert sent >= 10_000
    assert _value(server, "basket_batch_rows_sum", "quick") == sent
    assert _value(server, "basket_batch_rows_count", "quick") < sent / 2
    assert np.array_equal(rows.view(np.uint32), answered.view(np.uint32))


def test_request_larger_than_a_batch_is_answered_whole(server):
    """A request of 100 rows is split into batches of 8 and joined in order."""
    rows = np.arange(800, dtype=np.float32).reshape(100, 8).tolist()
    with Client(server.port, model="small") as client:
        client.send(rows)
        reply = client.receive()
    assert reply.json() == {"predictions": rows}
    assert reply.headers["X-Batch-Size"] == "8"
    assert _value(server, "basket_batch_rows_count", "small") == 13


def test_full_queue_answers_503_with_retry_after(tmp_path):
    """With space for one batch in the queue, the rest of 20 get 503 and Retry-After."""
    folder = simulated_models(tmp_path, slow=SLOW)
    limits = {"max_batch_size": "2", "max_enqueued_batches": "1"}
    with serving("--threads=20", model_dir=folder, **limits) as server:
        replies, _ = at_once(server.port, _rows(20))
        refused = [reply for reply in replies if reply.status == 503]
        accepted = [reply for reply in replies if reply.status == 200]
        assert len(refused) + len(accepted) == 20
        assert 2 <= len(accepted) < 20
        assert all(int(reply.headers["Retry-After"]) >= 1 for reply in refused)
        assert all("queue holds" in reply.json()["error"] for reply in refused)
        series = 'basket_rejected_total{reason="queue_full"}'
        assert server.metric(series) == len(refused)


@contextmanager
def _backlog(server):
    """Have a backlog of 16 rows, which are run one by one; check that all ran."""
    ran = _value(server, "basket_batch_rows_sum", "steady")
    with Client(server.port, model="steady") as first:
        first.send([[0.0] * 8] * 16)
        queued = 'basket_queue_rows{model="steady",version="1"}'
        # All 16 would fill the queue.
        wait_until(lambda: 0 < server.metric(queued) < 16, 60)
        yield
        assert first.receive().status == 200
        assert _value(server, "basket_batch_rows_sum", "steady") == ran + 16


def _rejected(server, *reasons):
    series = [f'basket_rejected_total{{reason="{each}"}}' for each in reasons]
    return sum(map(server.metric, series))


def test_row_past_its_deadline_is_not_computed(server):
    """A row whose deadline passes in the queue is answered 504 and never runs."""
    before = _rejected(server, "late", "deadline")
    with _backlog(server), Client(server.port, model="steady") as second:
        second.send([[1.0] * 8], {"X-Request-Timeout-Ms": "1"})
        # Admission control may refuse it before it is late.
        assert second.receive().status in (503, 504)
        assert _rejected(server, "late", "deadline") == before + 1


def test_row_of_a_disconnected_client_is_not_computed(server):
    """A client that disconnects while its row is queued costs no inference."""
    before = _rejected(server, "abandoned")
    with _backlog(server):
        with Client(server.port, model="steady") as second:
            second.send([[1.0] * 8])
        wait_until(lambda: _rejected(server, "abandoned") == before + 1, 60)
