"""Ask each model with PyTriton's own client, and print the results as JSON.

Run as a script in an environment with nvidia-pytriton, whose NumPy is older than
Basket's. The argument is JSON: URLs, models, and the rows of each model by input.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pytriton.client import ModelClient
from pytriton.client.exceptions import (
    PyTritonClientModelDoesntSupportBatchingError,
)


def ask(url: str, model: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Send all rows as a batch, and the first one alone."""
    with ModelClient(url, model, init_timeout_s=30) as client:
        rows = {name: array_of(*value) for name, value in inputs.items()}
        return {
            "batch": asked(client.infer_batch, rows),
            "sample": asked(
                client.infer_sample,
                {name: np.asarray(array[0]) for name, array in rows.items()}
                if client.is_batching_supported
                else rows,
            ),
            "dims": [spec.shape for spec in client.model_config.inputs],
        }


def array_of(dtype: str, values: Any) -> np.ndarray:
    array = np.array(values, dtype)
    return np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array


def asked(call: Callable[..., Any], inputs: Mapping[str, np.ndarray]) -> Any:
    try:
        outputs = call(**inputs)
    except PyTritonClientModelDoesntSupportBatchingError:
        return "not batched"
    return {name: plain(np.asarray(array)) for name, array in outputs.items()}


def plain(array: np.ndarray) -> Any:
    values = array.tolist()
    if array.dtype.kind not in "OS":
        return values
    return [value.decode() for value in values] if array.ndim else values.decode()


def main(urls: list[str], models: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the results by model, for each URL."""
    print(
        json.dumps(
            [{name: ask(url, name, models[name]) for name in models} for url in urls]
        )
    )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
