"""The workload on service-streamer, in a Flask app that Gunicorn imports."""

import workload
from flask import Flask, Response, request
from service_streamer import ThreadedStreamer

app = Flask(__name__)
_streamer = ThreadedStreamer(
    workload.Model().predict,
    batch_size=workload.MAX_BATCH_SIZE,
    max_latency=workload.WAIT_MS / 1000,
)


@app.post("/predict")
def predict():
    """Decode and encode in the request's thread."""
    (answer,) = _streamer.predict([workload.decode(request.get_data())])
    return Response(workload.encode(answer), mimetype="application/json")
