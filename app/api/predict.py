"""POST /predict, for the default model: rows as JSON or .npy, or pictures."""

import re
from dataclasses import dataclass

from flask import Blueprint, Response, request

from app.api import upload
from app.api.inference import Inference, client_name, count
from app.codec import classes, images, npy, rows
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.serving.routing import Target
from app.serving.served import ServedModel
from app.settings.image_config import ImageConfig


@dataclass(frozen=True)
class _Pictures:
    """A request's pictures as rows; `top`: so many classes are wanted for each."""

    inputs: Tensors
    config: ImageConfig
    single: bool
    top: int | None
    signature_name: str = DEFAULT_SIGNATURE
    timeout_s: float | None = None


def predict_blueprint(inference: Inference) -> Blueprint:
    """The route, and the name it has in an older service."""
    blueprint = Blueprint("predict", __name__)

    @blueprint.post("/predict")
    @blueprint.post("/stream_predict")
    def predict() -> Response:
        return inference.answer(Target(client=client_name()), _decode, _encode)

    blueprint.after_request(count)
    return blueprint


def _decode(body: bytes, model: ServedModel) -> rows.Request | _Pictures:
    if request.mimetype == npy.CONTENT_TYPE:
        signature = rows.find_signature(model.signatures, DEFAULT_SIGNATURE)
        inputs = npy.decode(body, signature)
        return rows.Request(DEFAULT_SIGNATURE, inputs)
    pictures = upload.pictures(body)
    config = model.config.image
    if pictures is None:
        return rows.decode(body, model.signatures, config)
    if config is None:
        raise BadInput(
            f"model {model.name!r} takes no pictures: its basket.toml has no [image]"
        )
    top = _top(config)
    (spec,) = model.signatures[DEFAULT_SIGNATURE].inputs
    inputs = {spec.name: images.decode(pictures, config, spec, "picture")}
    return _Pictures(inputs, config, len(pictures) == 1, top)


def _top(config: ImageConfig) -> int | None:
    """How many classes the request asks for."""
    text = request.args.get("top")
    if text is None:
        return None
    most = len(config.classes)
    if not most:
        raise BadInput("top: this model has no classes, only predictions")
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise BadInput(
            f"top: expected a whole number from 1 to {most}, given {text[:40]!r}"
        )
    return int(text)


def _encode(
    model: ServedModel, asked: rows.Request | _Pictures, outputs: Tensors
) -> Response:
    del model
    if npy.CONTENT_TYPE in request.headers.get("Accept", ""):
        return Response(npy.encode(outputs), content_type=npy.CONTENT_TYPE)
    if isinstance(asked, rows.Request):
        body = rows.encode(outputs, columnar=asked.columnar)
    elif asked.config.classes:
        body = classes.encode(
            outputs, asked.config.classes, asked.top, single=asked.single
        )
    else:
        body = rows.encode(outputs)
    return Response(body, content_type="application/json")
