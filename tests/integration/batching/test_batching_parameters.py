"""TensorFlow Serving's batching parameters file on a real server."""

import os
import re
import signal

import pytest

from testing.server import metric_sum, serving, simulated_models, wait_until

STEADY = {"base_ms": 0, "per_row_ms": 20, "input_shape": [2], "outputs": 2}
FILE = """
max_batch_size { value: 8 }
num_batch_threads { value: 4 }
allowed_batch_sizes: 4
allowed_batch_sizes: 8
"""


@pytest.fixture(name="file", scope="module")
def _file(tmp_path_factory):
    file = tmp_path_factory.mktemp("batching") / "parameters.txt"
    file.write_text(FILE)
    return file


@pytest.fixture(name="server", scope="module")
def _server(file, tmp_path_factory):
    settings = {
        "model_dir": simulated_models(tmp_path_factory.mktemp("models"), steady=STEADY),
        "batching_parameters_file": str(file),
    }
    with serving("--threads=8", **settings) as server:
        yield server


def test_single_row_is_padded_to_the_smallest_allowed_size(server):
    """One row runs as a batch of four; only the one is answered and counted."""
    before = metric_sum(server, "basket_batch_rows_sum")
    reply = server.predict([[1.0, 2.0]])
    assert reply.json() == {"predictions": [[1.0, 2.0]]}
    assert reply.headers["X-Batch-Size"] == "1"
    assert metric_sum(server, "basket_batch_rows_sum") == before + 1
    (took_ms,) = re.findall(r"infer;dur=([0-9.]+)", reply.headers["Server-Timing"])
    assert float(took_ms) >= 4 * 20


def test_max_batch_size_of_the_parameters_file_is_used(server):
    """A request of eleven rows is split at eight, and answered whole."""
    rows = [[float(n), 0.0] for n in range(11)]
    reply = server.predict(rows)
    assert reply.json() == {"predictions": rows}
    assert reply.headers["X-Batch-Size"] == "8"


def test_parameter_without_effect_is_logged_once(server):
    """The log has a line for num_batch_threads, and none for the others."""
    lines = re.findall("BASKET_BATCHING_PARAMETERS_FILE.*", server.log.read_text())
    assert lines == [
        "BASKET_BATCHING_PARAMETERS_FILE: num_batch_threads is meaningless here: each "
        "model has one batching thread"
    ]


def test_edit_of_the_parameters_file_has_no_effect_before_a_restart(server, file):
    """A worker that replaces a killed one uses the file as it was at the start."""
    file.write_text("max_batchsize: 8")
    (worker,) = server.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: server.loaded() == 2, 20, server.log.read_text)
    assert server.predict([[1.0, 2.0]] * 9).headers["X-Batch-Size"] == "8"


def test_invalid_parameters_file_is_a_configuration_error(tmp_path):
    """An unknown field stops Gunicorn at the start, with a line that names it."""
    bad = tmp_path / "bad.txt"
    bad.write_text("\nmax_batchsize { value: 8 }")
    folder = simulated_models(tmp_path, steady=STEADY)
    settings = {"model_dir": folder, "batching_parameters_file": str(bad)}
    with serving(ready=False, **settings) as server:
        assert server.process.wait(60) == 1
        log = server.log.read_text()
        assert f"BASKET_BATCHING_PARAMETERS_FILE='{bad}': line 2:1" in log
        assert '"max_batchsize"' in log
        assert "Traceback" not in log
