"""KServe's own Python client, V1, V2 and gRPC, against a real Basket."""

import json
import subprocess

import pytest

from testing.server import ROOT, simulated_models
from tests.support.grpc_calls import serving_grpc

PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
SCRIPT = ROOT / "tests" / "support" / "kserve_client.py"
ROWS = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]]
# An echo, and a model that fails to load.
MODELS = {
    "echo": {"base_ms": 0, "input_shape": [3], "outputs": 3},
    "broken": {"outputs": 0},
}

pytestmark = [
    pytest.mark.skipif(
        not PYTHON.exists(), reason="no .venv-kserve; `make test` installs it"
    )
]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Run KServe's client against a server, and return its results."""
    models = simulated_models(tmp_path_factory.mktemp("models"), **MODELS)
    settings = {"ready": False, "model_dir": models, "admin_keys": "admin"}
    with serving_grpc("--threads=4", **settings) as (server, grpc_address):
        server.wait_until_loaded()
        url = f"http://127.0.0.1:{server.port}"
        asked = subprocess.run(
            [PYTHON, SCRIPT, url, grpc_address],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def test_kserve_v1_client(said):
    """KServe's V1 client finds readiness, and gets its predictions."""
    v1 = said["v1"]
    refusal = v1.pop("refusal")
    assert "instances[0]" in refusal
    assert "400" in refusal
    assert v1 == {
        "live": True,
        "ready": True,
        "broken is ready": False,
        "predictions": ROWS,
    }


def test_kserve_v2_client(said):
    """KServe's V2 client finds readiness, and gets its tensors, in JSON and binary."""
    v2 = said["v2"]
    refusal = v2.pop("refusal")
    assert "input 'input': expected shape [-1, 3], given [1, 1]" in refusal
    assert "400" in refusal
    # One model is broken, and never was ready.
    assert v2.pop("server is ready") is True
    assert v2 == {
        "live": True,
        "ready": True,
        "broken is ready": False,
        "json": ROWS,
        "json is echoed": True,
        "binary": ROWS,
        "binary is echoed": True,
    }


def test_kserve_grpc_client(said):
    """KServe's gRPC client finds readiness and its tensors, and changes the models."""
    assert said["grpc"] == {
        "live": True,
        "server is ready": True,
        "ready": True,
        "broken is ready": False,
        "contents": ROWS,
        "contents is echoed": True,
        "binary": ROWS,
        "binary is echoed": True,
        "refusal": (
            "INVALID_ARGUMENT: input 'input': expected shape [-1, 3], given [1, 1]"
        ),
        # Changes of the repository.
        "stranger": "UNAUTHENTICATED",
        "unloaded": ["echo", True],
        "ready when unloaded": False,
        "loaded": ["echo", True],
        "ready when loaded": True,
    }
