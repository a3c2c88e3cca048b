"""Wrong layouts, as clients of a real server see them."""

import pytest

from testing.server import serving, simulated_models

ECHO = {"base_ms": 0, "input_shape": [2], "outputs": 2}
STRAY = (
    "my.keras is in no folder: serve it alone with "
    "BASKET_MODEL=$BASKET_MODEL_DIR/my.keras, or `mkdir -p $BASKET_MODEL_DIR/my/1 && "
    "mv $BASKET_MODEL_DIR/my.keras $BASKET_MODEL_DIR/my/1/model.keras`"
)


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_stray_file_is_named_and_ready_only_beside_a_model(tmp_path, model_process):
    """Without a model the server answers /readyz with the command."""
    (tmp_path / "my.keras").touch()
    options = {"model_dir": str(tmp_path), "model_process": model_process}
    with serving("--threads=4", ready=False, **options) as server:
        server.wait_until(lambda: STRAY in server.log.read_text(), 60)

        def ready():
            return server.request("GET", "/readyz")

        text = f"holds no model; {STRAY}"
        server.wait_until(lambda: "BASKET_MODEL_DIR" in ready().body.decode(), 60)
        assert ready().status == 503
        assert ready().json()["error"] == f"BASKET_MODEL_DIR: {text}"
        simulated_models(tmp_path, echo=ECHO)
        server.wait_until(lambda: ready().status == 200, 60)
        assert ready().json()["problems"] == {"BASKET_MODEL_DIR": [STRAY]}
        assert server.predict([[1.0, 2.0]]).status == 200
