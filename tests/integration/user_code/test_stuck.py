"""A service.py whose functions never return, beside a healthy neighbor."""

import threading

import pytest

from testing.server import wait_until
from tests.support.user_code import (
    ECHO,
    add_neighbor,
    add_service,
    healthy_neighbor,
    predict,
    serving_code,
)

PREDICT = """
import threading


def predict(model, batch):
    if 13 in batch:
        threading.Event().wait()
    return batch
"""
AROUND = """
import threading


def preprocess(value):
    if value == 13:
        threading.Event().wait()
    return [value]


def postprocess(row):
    if row[0] == 14:
        threading.Event().wait()
    return row[0]
"""
HEALTHY = """
def predict(model, batch):
    return batch
"""
IMPORT = """
import threading

print("imports", flush=True)
threading.Event().wait()
"""
LEAKS = """
import threading


def predict(model, batch):
    # The interpreter waits for it at its end.
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    return batch
"""
SOON = {"X-Request-Timeout-Ms": "300"}
# Far less than the graceful timeout, after which the arbiter kills workers.
STOP_WITHIN_S = 10


@pytest.fixture(name="models")
def _models(tmp_path):
    """A folder of models, with the neighbor."""
    models = tmp_path / "models"
    add_neighbor(models)
    return models


MODES = pytest.mark.parametrize("mode", ["worker", "shared"])


def _serve(models, mode, **settings):
    """Serve models; the neighbor is the default."""
    return serving_code(
        models,
        model_process=mode,
        default_model="neighbor",
        **settings,
    )


def _wait_until_stuck(server):
    """Wait until /healthz names the model."""
    error = "no progress while requests wait: stuck version 1"

    def health():
        return server.request("GET", "/healthz").json()

    wait_until(lambda: health() == {"error": error}, 30, health)


def test_predict_that_never_returns_is_late_and_shown_as_stuck(models):
    """Its clients get 504, /healthz names it, and the server stops in time."""
    add_service(models, "stuck", PREDICT)
    with _serve(models, "worker", request_timeout_ms="1000") as server:
        assert predict(server, "stuck", [5]) == (200, [5])
        with healthy_neighbor(server):
            assert predict(server, "stuck", [13], SOON)[0] == 504
            # Behind it in the queue.
            assert predict(server, "stuck", [5], SOON)[0] == 504
            _wait_until_stuck(server)
        assert server.stop(STOP_WITHIN_S) == 0


def test_shared_process_whose_predict_never_returns_is_replaced(models):
    """Its client gets 504, and a new process serves all models."""
    add_service(models, "stuck", PREDICT)
    with _serve(models, "shared", request_timeout_ms="1000") as server:
        assert predict(server, "stuck", [13], SOON)[0] == 504
        replaced = "a model hangs: the model process ends itself"
        wait_until(lambda: replaced in server.log.read_text(), 30)
        for name in ("stuck", "neighbor"):
            wait_until(lambda: predict(server, name, [[5]])[0] == 200, 30)  # noqa: B023
        assert server.stop(STOP_WITHIN_S) == 0


@MODES
@pytest.mark.parametrize(("name", "value"), [("preprocess", 13), ("postprocess", 14)])
def test_function_that_never_returns_holds_no_other_model(models, mode, name, value):
    """More requests than there are threads get 504; other routes still answer."""
    add_service(models, "stuck", AROUND, simulated=ECHO)
    error = "service.py did not return by the deadline"
    with _serve(models, mode, request_timeout_ms="1000") as server:
        assert predict(server, "stuck", [5]) == (200, [5])
        with healthy_neighbor(server):
            answers = []
            clients = [
                threading.Thread(
                    target=lambda: answers.append(
                        predict(server, "stuck", [value], SOON)
                    )
                )
                for _ in range(40)
            ]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert answers == [(504, error)] * 40
            assert server.request("GET", "/readyz").status == 200
            # In the threads of large bodies, of which there are four.
            assert server.request("POST", "/v2/repository/index").status == 200
            _wait_until_stuck(server)
        assert server.stop(STOP_WITHIN_S) == 0


@MODES
def test_threads_that_never_end_do_not_keep_the_server(models, mode):
    """SIGTERM ends a worker whose service.py has left threads behind."""
    add_service(models, "leaks", LEAKS)
    with _serve(models, mode) as server:
        with healthy_neighbor(server):
            for value in range(5):
                assert predict(server, "leaks", [value]) == (200, [value])
        assert server.stop(STOP_WITHIN_S) == 0


@MODES
def test_import_that_never_returns_harms_no_other_model(models, mode):
    """The version before it and other models answer, and SIGTERM ends the server."""
    add_service(models, "stuck", HEALTHY)
    with _serve(models, mode) as server:
        with healthy_neighbor(server):
            add_service(models, "stuck", IMPORT, 2)
            wait_until(lambda: "imports" in server.log.read_text(), 30)
            assert predict(server, "stuck", [5]) == (200, [5])
        assert server.stop(STOP_WITHIN_S) == 0
