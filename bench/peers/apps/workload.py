"""The workload of every peer: model, decoding, encoding.

It runs in a peer's environment and imports nothing of Basket. Environment variables:
MODEL is a .keras file or a simulated.json; with TAKES_PICTURES rows come as JPEGs, else
as JSON; WAIT_MS is how long a batch may wait, for servers with such a setting.
"""

import io
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import orjson
from PIL import Image

MAX_BATCH_SIZE = 64
# Longer than any request takes: errors are the server's own.
TIMEOUT_S = 60
WAIT_MS = int(os.environ.get("WAIT_MS", "10"))
PORT = int(os.environ.get("PORT", "0"))
_FILE = Path(os.environ.get("MODEL", ""))
TAKES_PICTURES = bool(os.environ.get("TAKES_PICTURES"))


class Model:
    """Computes batches."""

    def __init__(self):
        """Load the model, and run it with one row and with a full batch."""
        simulated = _FILE.suffix == ".json"
        self._run = _simulated(_FILE) if simulated else _keras(_FILE)
        if not simulated:
            for rows in (1, MAX_BATCH_SIZE):
                self._run(np.zeros([rows, *self._run.shape], self._run.dtype))

    def predict(self, rows):
        """Return an answer for `encode` for each row, in order."""
        outputs = self._run(np.stack(rows))
        if not TAKES_PICTURES:
            return list(outputs)
        best = outputs.argmax(axis=1)
        scores = outputs[np.arange(len(best)), best]
        return [
            {"class_id": str(number), "score": float(score)}
            for number, score in zip(best, scores, strict=True)
        ]


def decode(body):
    """Return the row in a request's body."""
    if TAKES_PICTURES:
        image = Image.open(io.BytesIO(body))
        return np.asarray(image.resize((96, 96), Image.Resampling.NEAREST))
    return row_of(orjson.loads(body))


def row_of(request):
    """Return the row in decoded JSON."""
    (row,) = request["instances"]
    return np.asarray(row, np.float32)


def encode(answer):
    """Return a response's body in JSON."""
    if not isinstance(answer, dict):
        answer = {"predictions": [answer]}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _keras(file):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras  # noqa: PLC0415 # only for Keras models
    import tensorflow as tf  # noqa: PLC0415

    model = keras.models.load_model(file, compile=False)
    shape, dtype = model.input_shape[1:], model.inputs[0].dtype

    # One trace for all batch sizes.
    @tf.function(input_signature=[tf.TensorSpec([None, *shape], dtype)])
    def compute(rows):
        return model(rows, training=False)

    def run(rows):
        return compute(tf.constant(rows)).numpy()

    run.shape, run.dtype = shape, dtype
    return run


def _simulated(file):
    device = json.loads(file.read_text())
    lock = threading.Lock()

    def run(rows):
        with lock:
            time.sleep((device["base_ms"] + device["per_row_ms"] * len(rows)) / 1000)
        return rows[:, : device["outputs"]]

    return run
