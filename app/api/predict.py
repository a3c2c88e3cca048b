"""POST /predict, for the default or a named model: JSON, .npy, or images."""

import re

from flask import Flask
from werkzeug.http import parse_accept_header

from app.api import upload, user_code
from app.api.application import Find
from app.api.environ import path_of, traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference.inference import Inference
from app.codec import classes, npy, rows
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings.image_config import ImageConfig

_PATHS = ("/predict", "/stream_predict")


def declare(app: Flask) -> None:
    """Declare the route, and its name in an older service, to Flask."""
    for path in _PATHS:
        app.add_url_rule(path, path, methods=["POST"])


def finder(inference: Inference) -> Find:
    """Return a function that finds the handler of a request that predicts."""

    async def answer(exchange: Exchange) -> HttpResponse:
        name = exchange.query("model")
        target = Target(name, client=traffic_split_key(exchange.environ))
        return await inference.answer(
            exchange, target, (_decode, _encode), calls_service=True
        )

    return lambda environ: answer if path_of(environ) in _PATHS else None


def _decode(exchange: Exchange, body: bytes, model: ServedModel) -> rows.Request:
    if model.reads_instances:
        return user_code.decode(exchange, body, model)
    mimetype = exchange.mimetype
    if mimetype == npy.CONTENT_TYPE:
        signature = rows.find_signature(model.signatures, DEFAULT_SIGNATURE)
        inputs = npy.decode(body, signature, model.max_rows)
        form = rows.Form(is_whole=signature.takes_whole_tensors)
        return rows.Request(DEFAULT_SIGNATURE, inputs, form)
    if upload.has_pictures(mimetype, body):
        # Before the pictures are decoded.
        _top(exchange, model.config.image)
        return upload.decode(exchange, body, model)
    bounds = exchange.bounds(model)
    return rows.decode(body, model.signatures, model.config.image, bounds)


def _top(exchange: Exchange, config: ImageConfig | None) -> int | None:
    """Return the number of classes in the query, at most all; None if it has none."""
    text = exchange.query("top")
    if text is None or config is None:
        return None
    if not config.classes:
        raise BadInput("top: this model has no classes, only predictions")
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text[:100]):
        raise BadInput(f"top: expected a whole number, 1 or more, given {text[:40]!r}")
    return min(int(text), len(config.classes))


def _encode(
    exchange: Exchange, model: ServedModel, decoded: rows.Request, outputs: Tensors
) -> HttpResponse:
    if model.user_code is not None and model.writes_predictions:
        return HttpResponse(model.user_code.body_of(outputs))
    if _wants_npy(exchange.header("Accept") or ""):
        array = npy.encode(outputs, is_whole=decoded.form.is_whole)
        return HttpResponse(array, npy.CONTENT_TYPE)
    config = model.config.image
    if isinstance(decoded, upload.Pictures) and config is not None and config.classes:
        top = _top(exchange, config)
        return HttpResponse(classes.encode(outputs, config.classes, top))
    return HttpResponse(rows.encode(outputs, decoded.form))


def _wants_npy(accept: str) -> bool:
    """Return whether Accept names .npy without q=0; other types are ignored."""
    if "npy" not in accept.lower():
        return False
    return any(
        quality and media_type.partition(";")[0].strip().lower() == npy.CONTENT_TYPE
        for media_type, quality in parse_accept_header(accept)
    )
