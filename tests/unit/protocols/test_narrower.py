"""A model's own dtype that is narrower than the dtype of its requests."""

import json
from functools import partial

import numpy as np
import pytest

from app.engines import simulated
from app.engines.base import TensorSpec
from testing.server import simulated_models
from tests.support.exchanges import error, npy_of, started_client

LOST = np.array([[1.0], [3.4e38]], np.float32)
LISTS = LOST.tolist()
TENSOR = {"name": "input", "datatype": "FP32", "shape": [2, 1]}
BINARY = json.dumps(
    {"inputs": [{**TENSOR, "parameters": {"binary_data_size": LOST.nbytes}}]}
).encode()
V1, V2 = "/v1/models/m:predict", "/v2/models/m/infer"
BODIES = {
    "rows": (V1, json.dumps({"instances": LISTS}).encode(), {}),
    "columns": (V1, json.dumps({"inputs": LISTS}).encode(), {}),
    "npy": ("/predict", npy_of(LOST), {"Content-Type": "application/x-npy"}),
    "V2": (V2, json.dumps({"inputs": [{**TENSOR, "data": LISTS}]}).encode(), {}),
    "V2, binary": (
        *(V2, BINARY + LOST.tobytes()),
        {"Inference-Header-Content-Length": str(len(BINARY))},
    ),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Serve a simulated model whose own dtype is bfloat16."""
    folder = tmp_path_factory.mktemp("models")
    simulated_models(folder, m={"base_ms": 0, "input_shape": [1], "outputs": 1})
    narrower = partial(TensorSpec, narrower="bfloat16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "TensorSpec", narrower)
        with started_client(folder) as client:
            yield client


@pytest.mark.parametrize("body", BODIES)
def test_value_out_of_the_models_range_returns_400(client, body):
    """All forms of a request are checked, and the text names the value's place."""
    path, data, headers = BODIES[body]
    text = error(client.post(path, data=data, headers=headers), 400)
    value = LOST[1, 0]
    assert text == f"input 'input'[1][0]: {value} is out of range for bfloat16"
