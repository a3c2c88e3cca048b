"""BASKET_MODEL: one file or folder of a user, wherever it lies."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testing.server import serving, simulated_models
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.keras,
    # From TensorFlow and Keras.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# Generous: the machine may be busy with other tests.
WITHIN_S = 60


def _model(answer: float) -> Any:
    """Return a model of one input that answers each row with one number."""
    # Not at the top: a run without these tests must not import TensorFlow.
    from app.engines.tensorflow.keras_file import keras  # noqa: PLC0415

    row = keras.Input((1,))
    model = keras.Model(row, keras.layers.Dense(1)(row))
    model.set_weights([np.zeros((1, 1)), np.array([answer])])
    return model


def _save(model: Any, file: Path) -> None:
    if file.suffix:
        model.save(file)
    else:
        model.export(file)


@pytest.mark.parametrize(
    ("name", "model_process"),
    [("my.keras", "worker"), ("my.h5", "shared"), ("exported", "shared")],
)
def test_file_saved_again_under_load_fails_no_request(tmp_path, name, model_process):
    """Each save is the next version in all workers, also in those started later."""
    file = tmp_path / name
    _save(_model(1), file)
    settings = {"model": str(file), "model_process": model_process}
    took_s = []
    with serving("--threads=4", "--workers=2", **settings) as server:
        workers = server.workers()
        with Traffic(server.port, [[0.0]]) as traffic:
            for answer in (2.0, 3.0):
                model = _model(answer)
                _save(model, file)
                saved_at = time.monotonic()
                server.wait_until(lambda n=answer: (n,) in traffic.numbers(), WITHIN_S)
                took_s.append(f"{time.monotonic() - saved_at:.1f} s")
        assert traffic.failed == []
        assert set(traffic.answers) == {("1", (1,)), ("2", (2,)), ("3", (3,))}
        print("new answers after", took_s)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        server.wait_until(lambda: not set(workers) & set(server.workers()), WITHIN_S)
        server.wait_until_ready()
        reply = server.predict([[0.0]])
        assert reply.json() == {"predictions": [[3.0]]}
        assert reply.headers["X-Model-Version"] == "3"


def _hdf5_file(folder: Path) -> None:
    _model(7).save(folder / "weights-12.h5")


def _saved_model(folder: Path) -> None:
    _model(7).export(folder)


def _version_folders(folder: Path) -> None:
    simulated_models(folder, new={"base_ms": 0, "input_shape": [1], "outputs": 1})
    (folder / "new" / "1").rename(folder / "20261123")
    (folder / "new").rmdir()


@pytest.fixture(name="mounted", params=["hdf5", "saved_model", "versions"])
def _mounted(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a folder in which KServe may have put a model."""
    (tmp_path / "mnt" / "models").mkdir(parents=True)
    write = {
        "hdf5": _hdf5_file,
        "saved_model": _saved_model,
        "versions": _version_folders,
    }[request.param]
    write(tmp_path / "mnt" / "models")
    return str(tmp_path / "mnt" / "models")


def test_folder_that_kserve_mounts_is_served(mounted):
    """The name of the service is the model's; its version is a folder's, or 1."""
    with serving("--threads=4", model=mounted, model_name="flowers") as server:
        body = b'{"instances": [[7.0]]}'
        reply = server.request("POST", "/v1/models/flowers:predict", body)
        assert reply.json() == {"predictions": [[7.0]]}
        assert reply.headers["X-Model-Version"] in ("1", "20261123")
        assert server.predict([[7.0]]).json() == {"predictions": [[7.0]]}
        assert server.request("GET", "/readyz").json()["default_model"] == "flowers"


def test_only_worker_is_replaced_although_the_file_is_away(tmp_path):
    """The server keeps serving, and loads the file when it is back."""
    simulated_models(tmp_path, quick={"base_ms": 0, "input_shape": [1], "outputs": 1})
    version, away = tmp_path / "quick" / "1", tmp_path / "away"
    with serving("--threads=4", model=str(version)) as server:

        def ready():
            return server.request("GET", "/readyz")

        version.rename(away)
        server.wait_until(lambda: "No such file" in ready().body.decode(), WITHIN_S)
        assert ready().status == 200
        assert server.predict([[7.0]]).json() == {"predictions": [[7.0]]}
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        server.wait_until(lambda: worker not in server.workers(), WITHIN_S)
        server.wait_until_loaded()
        refused = ready()
        assert refused.status == 503
        assert "BASKET_MODEL: No such file" in refused.json()["error"]
        assert str(tmp_path) not in refused.body.decode()
        away.rename(version)
        server.wait_until(lambda: ready().status == 200, WITHIN_S)
        reply = server.predict([[7.0]])
        assert reply.json() == {"predictions": [[7.0]]}
        assert reply.headers["X-Model-Version"] == "1"
