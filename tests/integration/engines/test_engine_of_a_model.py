"""`engine` in basket.toml: models on several engines in one server."""

from importlib.util import find_spec

import numpy as np
import pytest

from testing.server import ROOT, serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = [
    *(
        pytest.mark.skipif(
            find_spec(name) is None,
            reason=f"{name} is not installed: requirements/{name}.txt",
        )
        for name in ("jax", "openvino")
    ),
    *USES_TENSORFLOW,
    pytest.mark.timeout(300),
]
DIGITS = ROOT / "models" / "digits"
CASES = {
    "tensorflow": (("--threads=4",), {}),
    "jax": (("--threads=4", "--workers=2"), {"model_process": "shared"}),
}


def _write(folder, engine, save):
    (folder / "1").mkdir(parents=True)
    save(folder / "1" / "model.keras")
    (folder / "basket.toml").write_text(f'engine = "{engine}"\nmax_batch_size = 2\n')


@pytest.mark.parametrize("engine", CASES)
def test_models_of_a_server_run_on_engines_of_their_own(keras, tmp_path, engine):
    """Only JAX beside a server's Keras on TensorFlow is refused, with what to do."""
    words = keras.Input((), name="word", dtype="string")
    known = keras.layers.StringLookup(vocabulary=["tea", "milk"])
    _write(tmp_path / "words", "tensorflow", keras.Model(words, known(words)).save)
    for other in ("openvino", "jax"):
        copy = (DIGITS / "1" / "model.keras").read_bytes()
        _write(tmp_path / other, other, lambda file, copy=copy: file.write_bytes(copy))
    args, settings = CASES[engine]
    with serving(
        *args,
        ready=False,
        engine=engine,
        max_batch_size="2",
        model_dir=str(tmp_path),
        **settings,
    ) as server:
        server.wait_until_loaded()
        found = {}
        for name, rows in {
            "words": '["milk", "rice"]',
            "openvino": str(np.zeros((1, 8, 8, 1)).tolist()),
            "jax": str(np.zeros((1, 8, 8, 1)).tolist()),
        }.items():
            body = f'{{"instances": {rows}}}'.encode()
            found[name] = server.request("POST", f"/v1/models/{name}:predict", body)
        log = server.log.read_text()
        problems = server.request("GET", "/readyz").json().get("problems", {})
    assert found["words"].json() == {"predictions": [2, 0]}, log
    assert len(found["openvino"].json()["predictions"][0]) == 10, log
    if engine == "jax":
        assert len(found["jax"].json()["predictions"][0]) == 10, log
        assert not problems
    else:
        assert found["jax"].status == 503
        assert "start the server with BASKET_ENGINE=jax" in str(problems["jax"])
