"""A keras.json that another project has left in the user's folder."""

import json
from pathlib import Path

import pytest

from testing.processes import run_python
from testing.server import serving
from tests.support.marks import USES_TENSORFLOW
from tests.support.user_code import add_service

pytestmark = USES_TENSORFLOW

# With these, `third` answers in float16, and Keras can't be imported without Flax.
FOREIGN = {
    "floatx": "float16",
    "epsilon": 0.01,
    "image_data_format": "channels_first",
    "backend": "theano",
    "nnx_enabled": True,
}
SERVICE = """
import keras

CACHED = keras.utils.get_file("till.txt", origin={origin!r})


def predict(model, rows):
    config = keras.config
    found = [config.floatx(), config.image_data_format(), config.epsilon(), CACHED]
    return [found for _ in rows]
"""


@pytest.fixture(name="keras_home")
def _keras_home(tmp_path, monkeypatch):
    """Return the folder with keras.json, in that of the user."""
    home = tmp_path / "user" / ".keras"
    home.mkdir(parents=True)
    (home / "keras.json").write_text(json.dumps(FOREIGN))
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home.parent))
    return home


def test_keras_json_of_another_project_changes_no_answer(keras, tmp_path, keras_home):
    """Neither the server's processes nor a command read it; downloads stay there."""
    rows = keras.Input((1,), dtype="int32", name="row")
    model, folder = keras.Model(rows, rows / 3), tmp_path / "models"
    (folder / "third" / "1").mkdir(parents=True)
    model.save(folder / "third" / "1" / "model.keras")
    origin = tmp_path / "till.txt"
    origin.write_text("a till")
    add_service(folder, "told", SERVICE.format(origin=origin.as_uri()))
    # TensorFlow runs in the process that computes the reference.
    settings = {"engine": "jax", "user_code": "on", "model_dir": str(folder)}
    with serving("--threads=4", **settings, default_model="third") as server:
        assert server.predict([[1]]).json() == {"predictions": [[0.33333334]]}
        reply = server.request("POST", "/v1/models/told:predict", b'{"instances": [1]}')
        ((*config, cached),) = reply.json()["predictions"]
        assert config == ["float32", "channels_last", 1e-07]
        assert Path(cached).resolve() == keras_home / "datasets" / "till.txt"
    checked = run_python(
        *("-m", "flask", "--app", "wsgi", "models", "check", "third"),
        BASKET_MODEL_DIR=str(folder),
    )
    assert "float32 (1,)" in checked
    assert "float16" not in checked
    assert json.loads((keras_home / "keras.json").read_text()) == FOREIGN
