"""The models that requests are sent to, and valid requests for them."""

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from testing.exchange import Request
from testing.processes import run_python
from testing.server import ROOT, simulated_models

# May be unloaded; the good client needs the others.
SPARE = "spare"
THREADS = "--threads=16"
_KEY = "fuzz"
AUTHORIZATION = ("Authorization", f"Bearer {_KEY}")
SETTINGS = {
    "default_model": "quick",
    # The same, so that requests of all kinds are tried.
    "api_keys": _KEY,
    "admin_keys": _KEY,
    "max_body_bytes": "200000",
    "request_timeout_ms": "3000",
}
QUICK_ROW = [[1.5, -2.0], [3.0, 4.0]]
# Model -> one row, by the names of its inputs.
_ROWS: dict[str, dict[str, Any]] = {
    "quick": {"input": QUICK_ROW},
    "digits": {"image": np.zeros((8, 8, 1)).tolist()},
    "till": {"prices": [1, 2.5, 3], "customer": "Ann"},
    SPARE: {"input": QUICK_ROW},
}
NAMES = tuple(_ROWS)
_QUICK = {"base_ms": 0, "per_row_ms": 0, "input_shape": [2, 2], "outputs": 4}
# Strings, several inputs and outputs, and a second signature.
_MAKE_TILL = """
import pathlib, sys
from app.engines.tensorflow.engine import tf
from testing.tried.saved_models import several_signatures
from testing.tried.saving import Saving

several_signatures(Saving(None, tf, pathlib.Path(sys.argv[1])))
"""


def write_simulated(folder: Path) -> None:
    """Write the simulated models."""
    simulated_models(folder, **dict.fromkeys(("quick", SPARE), _QUICK))


def write_models(folder: Path) -> None:
    """Write all models: simulated, Keras with pictures, TensorFlow with strings."""
    write_simulated(folder)
    shutil.copytree(ROOT / "models" / "digits", folder / "digits")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    run_python("-c", _MAKE_TILL, str(folder.resolve() / "till" / "1"), **quiet)


def row(model: str) -> Any:
    """Return one row in TensorFlow Serving's JSON."""
    inputs = _ROWS[model]
    return inputs if len(inputs) > 1 else next(iter(inputs.values()))


def v2_inputs(model: str) -> list[dict[str, Any]]:
    """Return one row in the Open Inference Protocol's JSON."""
    arrays = {name: np.array([value]) for name, value in _ROWS[model].items()}
    return [
        {
            "name": name,
            "datatype": "BYTES" if array.dtype.kind == "U" else "FP32",
            "shape": list(array.shape),
            "data": array.ravel().tolist(),
        }
        for name, array in arrays.items()
    ]


def good_requests(names: Collection[str]) -> list[tuple[Request, Any]]:
    """Return the good client's requests to these models with the right answers."""
    flat = [value for line in QUICK_ROW for value in line]
    output = {"name": "output", "datatype": "FP32", "shape": [1, 4], "data": flat}
    v2_answer = {"model_name": "quick", "model_version": "1", "outputs": [output]}
    total = {"total": 6.5, "receipt": "Ann pays"}
    asked: list[tuple[str, Any, Any]] = [
        ("/predict", {"instances": [QUICK_ROW]}, {"predictions": [flat]}),
        ("/v2/models/quick/infer", {"inputs": v2_inputs("quick")}, v2_answer),
    ]
    if "till" in names:
        body = {"instances": [row("till")]}
        asked.append(("/v1/models/till:predict", body, {"predictions": [total]}))
    return [
        (Request("POST", path, (AUTHORIZATION,), json.dumps(body).encode()), answer)
        for path, body, answer in asked
    ]
