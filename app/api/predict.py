"""POST /predict: rows as JSON or .npy, for the default model."""

from flask import Blueprint, Response, request

from app.api.inference import Inference, client_name, count
from app.codec import npy, rows
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.serving.routing import Target
from app.serving.served import ServedModel


def predict_blueprint(inference: Inference) -> Blueprint:
    """The route, for the default model."""
    blueprint = Blueprint("predict", __name__)

    @blueprint.post("/predict")
    def predict() -> Response:
        return inference.answer(Target(client=client_name()), _decode, _encode)

    blueprint.after_request(count)
    return blueprint


def _decode(body: bytes, model: ServedModel) -> rows.Request:
    if request.mimetype == npy.CONTENT_TYPE:
        inputs = npy.decode(body, model.signatures[DEFAULT_SIGNATURE])
        return rows.Request(DEFAULT_SIGNATURE, inputs)
    return rows.decode(body, model.signatures)


def _encode(model: ServedModel, asked: rows.Request, outputs: Tensors) -> Response:
    del model
    if npy.CONTENT_TYPE in request.headers.get("Accept", ""):
        return Response(npy.encode(outputs), content_type=npy.CONTENT_TYPE)
    body = rows.encode(outputs, columnar=asked.columnar)
    return Response(body, content_type="application/json")
