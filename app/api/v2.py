"""The Open Inference Protocol (V2) over HTTP, with Triton's binary tensor extension."""

import re

from flask import Blueprint, Response, request

from app.api.inference import Inference, client_name, count
from app.api.v2_metadata import health_blueprint, metadata_blueprint
from app.api.v2_repository import Repository, repository_blueprint
from app.codec import tensors
from app.engines.base import Tensors
from app.errors import BadInput
from app.serving.catalog import Catalog
from app.serving.health import Health
from app.serving.routing import Target
from app.serving.served import ServedModel
from app.settings import Settings

_JSON_SIZE = "Inference-Header-Content-Length"


def v2_blueprints(
    catalog: Catalog,
    inference: Inference,
    loader: Repository,
    settings: Settings,
    health: Health,
) -> tuple[Blueprint, ...]:
    """All routes under /v2."""
    return (
        _infer_blueprint(inference),
        health_blueprint(catalog, health),
        metadata_blueprint(catalog),
        repository_blueprint(catalog, loader, settings),
    )


def _infer_blueprint(inference: Inference) -> Blueprint:
    blueprint = Blueprint("v2", __name__)

    @blueprint.post("/v2/models/<model>/infer")
    @blueprint.post("/v2/models/<model>/versions/<int:version>/infer")
    def infer(model: str, version: int | None = None) -> Response:
        target = Target(model, version, client=client_name())
        return inference.answer(target, _decode, _encode)

    blueprint.after_request(count)
    return blueprint


def _decode(body: bytes, model: ServedModel) -> tensors.Request:
    return tensors.decode(body, _json_size(), model.signatures)


def _json_size() -> int | None:
    """How many bytes of the body are JSON, by its header; None: all of them."""
    text = request.headers.get(_JSON_SIZE)
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise BadInput(f"{_JSON_SIZE}: expected a number of bytes, given {text[:40]!r}")
    return int(text)


def _encode(model: ServedModel, asked: tensors.Request, outputs: Tensors) -> Response:
    body, json_size = tensors.encode(model.name, model.version, asked.options, outputs)
    if json_size is None:
        return Response(body, content_type="application/json")
    response = Response(body, content_type="application/octet-stream")
    response.headers[_JSON_SIZE] = str(json_size)
    return response
