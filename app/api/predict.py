"""POST /predict: decode, submit, wait, encode, in the request's own thread."""

import time
from typing import NamedTuple

from flask import Blueprint, Response, g, request
from werkzeug.exceptions import RequestEntityTooLarge

from app import telemetry
from app.api.client import hung_up
from app.codec import npy, rows
from app.errors import BadInput, TooLarge
from app.serving.catalog import Catalog, ServedModel
from app.serving.job import Answer, Job
from app.settings import Settings


class _Timed(NamedTuple):
    """Seconds on the monotonic clock: arrival, inputs decoded, answer there."""

    arrived_at: float
    decoded_at: float
    answered_at: float


def predict_blueprint(catalog: Catalog, settings: Settings) -> Blueprint:
    """The route, for the default model."""
    blueprint = Blueprint("predict", __name__)

    @blueprint.post("/predict")
    def predict() -> Response:
        deadline = g.arrived_at + _timeout_s(settings.request_timeout_ms)
        model = g.model = catalog.find()
        body = _body()
        codec = npy if request.mimetype == npy.CONTENT_TYPE else rows
        job = Job(
            codec.decode(body, model.signature), deadline, hung_up(request.environ)
        )
        model.runner.submit(job)
        g.job = job
        answer = job.wait()
        timed = _Timed(g.arrived_at, job.enqueued_at, time.monotonic())
        return _respond(model, answer, timed)

    # For the whole app, and so before the keys are checked: a 401 is timed too.
    blueprint.before_app_request(_arrive)
    blueprint.after_request(_count)
    return blueprint


def _arrive() -> None:
    g.arrived_at = time.monotonic()


def _body() -> bytes:
    try:
        return request.get_data(cache=False)
    except RequestEntityTooLarge:
        limit = request.max_content_length
        raise TooLarge(f"the body is larger than {limit} bytes") from None


def _timeout_s(limit_ms: int) -> float:
    """The request's own timeout, which may only shorten the server's."""
    text = request.headers.get("X-Request-Timeout-Ms")
    if text is None:
        return limit_ms / 1000
    if not text.isascii() or not text.isdigit() or int(text[:18]) == 0:
        raise BadInput(
            f"X-Request-Timeout-Ms: expected a whole number of ms, given {text[:40]!r}"
        )
    return min(int(text[:18]), limit_ms) / 1000


def _respond(model: ServedModel, answer: Answer, timed: _Timed) -> Response:
    if npy.CONTENT_TYPE in request.headers.get("Accept", ""):
        body, content_type = npy.encode(answer.outputs), npy.CONTENT_TYPE
    else:
        body, content_type = rows.encode(answer.outputs), "application/json"
    spans_s = {
        "decode": timed.decoded_at - timed.arrived_at,
        "queue": answer.queue_s,
        "infer": answer.infer_s,
        "encode": time.monotonic() - timed.answered_at,
    }
    response = Response(body, content_type=content_type)
    response.headers["X-Model-Version"] = model.version
    response.headers["X-Batch-Size"] = str(answer.batch_rows)
    response.headers["Server-Timing"] = ", ".join(
        f"{name};dur={seconds * 1000:.3f}" for name, seconds in spans_s.items()
    )
    return response


def _count(response: Response) -> Response:
    """Put every request into the metrics, failures too."""
    if request.method == "OPTIONS":
        return response
    took_s = time.monotonic() - g.arrived_at
    if "model" in g:
        g.model.observer.request_answered(response.status_code, took_s)
    else:
        telemetry.request_without_model(response.status_code, took_s)
    if "job" in g:
        g.model.observer.job_left_queue(g.job.queue_s())
    if "rejection" in g:
        telemetry.rejected(g.rejection)
    return response
