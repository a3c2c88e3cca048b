"""A vision service on service-streamer, in the shape of its own example.

Run in the peer's environment: by itself it serves on gevent, as the example does;
Gunicorn may import `app` as well. The model comes from the file that MODEL names, and
takes uint8 pixels, which it scales in its graph.
"""

import io
import os
import sys

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from flask import Flask, jsonify, request
from PIL import Image
from service_streamer import ThreadedStreamer

_BATCH_SIZE = 64
_model = keras.models.load_model(os.environ["MODEL"], compile=False)
_side = _model.input_shape[1]


@tf.function(input_signature=[tf.TensorSpec([None, _side, _side, 3], tf.uint8)])
def _run(pictures):
    return _model(pictures, training=False)


def _pixels(picture: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return np.asarray(image.resize((_side, _side), Image.Resampling.NEAREST))


def predict_batch(pictures: list[bytes]) -> list[tuple[str, float]]:
    """The best class of each picture, as its index, and its score."""
    batch = np.stack([_pixels(picture) for picture in pictures])
    scores = _run(tf.constant(batch)).numpy()
    return [(str(row.argmax()), float(row.max())) for row in scores]


# Once with each size, so that nobody waits for a first time.
_run(tf.zeros([1, _side, _side, 3], tf.uint8))
_run(tf.zeros([_BATCH_SIZE, _side, _side, 3], tf.uint8))
app = Flask(__name__)
streamer = ThreadedStreamer(predict_batch, batch_size=_BATCH_SIZE)


@app.get("/ready")
def ready():
    """Answer as soon as there is somebody to answer."""
    return "ready"


@app.post("/stream_predict")
def stream_predict():
    """What is in the picture?"""
    picture = request.files["file"].read()
    class_id, score = streamer.predict([picture])[0]
    return jsonify({"class_id": class_id, "score": score})


if __name__ == "__main__":
    from gevent.pywsgi import WSGIServer

    WSGIServer(("127.0.0.1", int(sys.argv[1])), app, log=None).serve_forever()
