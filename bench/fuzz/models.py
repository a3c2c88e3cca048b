"""The models that requests are sent to, and valid requests for them."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from testing.exchange import Request
from testing.pictures import saved
from testing.server import ROOT, simulated_models

NAMES = ("quick", "digits", "till", "spare")
# May be unloaded; the good client needs the others.
SPARE = "spare"
KEY = "fuzz"
THREADS = 16
SETTINGS = {
    "default_model": "quick",
    # The same, so that requests of all kinds are tried.
    "api_keys": KEY,
    "admin_keys": KEY,
    "max_body_bytes": "200000",
    "request_timeout_ms": "3000",
}
QUICK_ROW = [[1.5, -2.0], [3.0, 4.0]]
TILL_ROW = {"prices": [1, 2.5, 3], "customer": "Ann"}
_QUICK = {"base_ms": 0, "per_row_ms": 0, "input_shape": [2, 2], "outputs": 4}
# Strings, several inputs and outputs, and a second signature.
_MAKE_TILL = """
import sys
from app.engines.tensorflow.engine import tf

class Till(tf.Module):
    @tf.function(input_signature=[
        tf.TensorSpec([None, 3], tf.float32, name="prices"),
        tf.TensorSpec([None], tf.string, name="customer")])
    def ring_up(self, prices, customer):
        return {"total": tf.reduce_sum(prices, axis=1), "receipt": customer}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="goods")])
    def pack(self, goods):
        return {"bag_bytes": tf.strings.join([goods, goods])}

till = Till()
signatures = {"serving_default": till.ring_up, "pack": till.pack}
tf.saved_model.save(till, sys.argv[1], signatures=signatures)
"""


def write_simulated(folder: Path) -> None:
    """Write the simulated models."""
    simulated_models(folder, **dict.fromkeys(("quick", SPARE), _QUICK))


def write_models(folder: Path) -> None:
    """Write all models: simulated, Keras with pictures, TensorFlow with strings."""
    write_simulated(folder)
    shutil.copytree(ROOT / "models" / "digits", folder / "digits")
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", _MAKE_TILL, str(folder.resolve() / "till" / "1")]
    subprocess.run(  # noqa: S603
        command, cwd=ROOT, check=True, env=quiet, capture_output=True
    )


def v2_inputs(model: str) -> list[dict[str, Any]]:
    """Return one row in the Open Inference Protocol's JSON."""
    if model == "till":
        return [
            {"name": "prices", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]},
            {"name": "customer", "datatype": "BYTES", "shape": [1], "data": ["Ann"]},
        ]
    name, row = ("image", [8, 8, 1]) if model == "digits" else ("input", [2, 2])
    size = int(np.prod(row))
    shape = [1, *row]
    return [{"name": name, "datatype": "FP32", "shape": shape, "data": [0.5] * size}]


def row(model: str) -> Any:
    """Return one row in TensorFlow Serving's JSON."""
    if model == "digits":
        return np.zeros((8, 8, 1)).tolist()
    return TILL_ROW if model == "till" else QUICK_ROW


def npy(array: Any) -> bytes:
    """Return an array as .npy."""
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def picture(kind: str) -> bytes:
    """Return a small picture, such as a PNG."""
    return saved(Image.linear_gradient("L").resize((12, 9)), kind)


def good_requests(names: Collection[str]) -> list[tuple[Request, Any]]:
    """Return the good client's requests to these models with the right answers."""
    quick = json.dumps({"instances": [QUICK_ROW]}).encode()
    till = json.dumps({"instances": [TILL_ROW]}).encode()
    flat = [value for line in QUICK_ROW for value in line]
    inputs = v2_inputs("quick")
    inputs[0]["data"] = flat
    v2 = json.dumps({"inputs": inputs}).encode()
    output = {"name": "output", "datatype": "FP32", "shape": [1, 4], "data": flat}
    v2_answer = {"model_name": "quick", "model_version": "1", "outputs": [output]}
    total = {"total": 6.5, "receipt": "Ann"}
    key = (("Authorization", f"Bearer {KEY}"),)
    requests: list[tuple[Request, Any]] = [
        (Request("POST", "/predict", key, quick), {"predictions": [flat]}),
        (Request("POST", "/v2/models/quick/infer", key, v2), v2_answer),
    ]
    if "till" in names:
        path = "/v1/models/till:predict"
        requests.append((Request("POST", path, key, till), {"predictions": [total]}))
    return requests
