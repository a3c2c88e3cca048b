"""POST /predict, for the default model: rows as JSON or .npy, or images."""

import re
from dataclasses import dataclass

from flask import Flask
from werkzeug.http import parse_accept_header

from app.api import upload
from app.api.application import Find
from app.api.environ import path_of, traffic_split_key
from app.api.exchange import Exchange, HttpResponse
from app.api.inference import Inference
from app.codec import classes, images, npy, rows
from app.codec.bounds import Bounds
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.errors import BadInput
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.settings.image_config import ImageConfig


@dataclass(frozen=True)
class _Pictures:
    """A request's images as rows; `top` is the number of classes for each, or None."""

    inputs: Tensors
    single: bool
    top: int | None
    signature_name: str = DEFAULT_SIGNATURE
    timeout_s: float | None = None


_PATHS = ("/predict", "/stream_predict")


def declare(app: Flask) -> None:
    """Declare the route, and its name in an older service, to Flask."""
    for path in _PATHS:
        app.add_url_rule(path, path, methods=["POST"])


def finder(inference: Inference) -> Find:
    """Return a function that finds the handler of a request that predicts."""

    async def answer(exchange: Exchange) -> HttpResponse:
        target = Target(client=traffic_split_key(exchange.environ))
        return await inference.answer(exchange, target, _decode, _encode)

    return lambda environ: answer if path_of(environ) in _PATHS else None


def _decode(
    exchange: Exchange, body: bytes, model: ServedModel
) -> rows.Request | _Pictures:
    mimetype = exchange.mimetype
    if mimetype == npy.CONTENT_TYPE:
        signature = rows.find_signature(model.signatures, DEFAULT_SIGNATURE)
        inputs = npy.decode(body, signature)
        return rows.Request(DEFAULT_SIGNATURE, inputs)
    config = model.config.image
    if not upload.is_of_pictures(mimetype):
        bounds = Bounds(model.max_rows, exchange.check_awaited)
        return rows.decode(body, model.signatures, config, bounds)
    if config is None:
        raise BadInput(
            f"model {model.name!r} takes no pictures: its basket.toml has no [image]"
        )
    pictures = upload.pictures(exchange, body)
    top = _top(exchange.query("top"), config)
    (spec,) = model.signatures[DEFAULT_SIGNATURE].inputs
    check = exchange.check_awaited
    rows_of_pixels = images.decode(pictures, config, spec, "picture", check=check)
    inputs = {spec.name: rows_of_pixels}
    return _Pictures(inputs, len(pictures) == 1, top)


def _top(text: str | None, config: ImageConfig) -> int | None:
    """Return the number of classes in the query, None if it has none."""
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
    exchange: Exchange,
    model: ServedModel,
    decoded: rows.Request | _Pictures,
    outputs: Tensors,
) -> HttpResponse:
    if _wants_npy(exchange.header("Accept") or ""):
        return HttpResponse(npy.encode(outputs), npy.CONTENT_TYPE)
    if isinstance(decoded, rows.Request):
        return HttpResponse(
            rows.encode(outputs, columnar=decoded.columnar, is_bare=decoded.is_bare)
        )
    config = model.config.image
    if config is not None and config.classes:
        known = config.classes
        return HttpResponse(
            classes.encode(outputs, known, decoded.top, single=decoded.single)
        )
    return HttpResponse(rows.encode(outputs))


def _wants_npy(accept: str) -> bool:
    """Return whether Accept names .npy without q=0; other types are ignored."""
    if "npy" not in accept.lower():
        return False
    return any(
        quality and media_type.partition(";")[0].strip().lower() == npy.CONTENT_TYPE
        for media_type, quality in parse_accept_header(accept)
    )
