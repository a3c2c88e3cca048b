"""The default model of a real server, while models come and go."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from testing.server import serving, simulated_models

ECHO = {"base_ms": 0, "input_shape": [2], "outputs": 2}


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_default_model_stays_when_models_come_and_go(tmp_path, model_process):
    """A second model, a new worker or a deletion never changes who answers /predict."""
    folder = simulated_models(tmp_path / "models", first=ECHO)
    options = {"model_dir": folder, "model_process": model_process}
    with serving("--threads=4", **options) as server:
        body = {"instances": [[1.0, 2.0]]}

        def predict():
            return server.request("POST", "/predict", json.dumps(body).encode())

        def ready():
            return server.request("GET", "/readyz").json()

        assert predict().status == 200
        simulated_models(Path(folder), digits=ECHO)
        server.wait_until(lambda: "digits" in ready()["models"], 60)
        assert ready()["default_model"] == "first"
        assert predict().status == 200
        killed = server.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        server.wait_until(
            lambda: not set(killed) & set(server.workers()) and predict().status == 200,
            30,
        )
        assert ready()["default_model"] == "first"
        shutil.rmtree(Path(folder) / "first")
        server.wait_until(lambda: predict().status == 404, 60)
        assert "no model 'first'" in predict().json()["error"]
        missing = {"first": "is the default model and not there"}
        assert ready()["not_ready"] == missing
