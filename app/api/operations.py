"""Routes for operators: liveness, readiness, metrics and the API description."""

from pathlib import Path

from flask import Blueprint, Response, request

from app import telemetry
from app.api.access.rights import Rights
from app.api.described import row_tensors
from app.api.exchange import JSON
from app.api.responses import json_response
from app.engines.base import main_signature
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.served import ServedModel

_OPENAPI = Path(__file__).with_name("openapi.json")


def operations_blueprint(catalog: Catalog, health: Health, rights: Rights) -> Blueprint:
    """Return /healthz (which is / too, as in KServe), /readyz, /metrics, /openapi.json.

    Health names no models to a stranger. The last answers with the file beside this
    module.
    """
    blueprint = Blueprint("operations", __name__)

    @blueprint.get("/")
    @blueprint.get("/healthz")
    def healthz() -> Response:
        stuck = health.stuck()
        if not stuck:
            return json_response({"status": "alive"})
        text = "no progress while requests wait"
        if rights.is_client(request.environ):
            text += f": {', '.join(stuck)}"
        return json_response({"error": text}, 503)

    @blueprint.get("/readyz")
    def readyz() -> Response:
        if rights.is_client(request.environ):
            return _readiness(catalog)
        if catalog.not_ready():
            return json_response({"error": "not ready"}, 503)
        return json_response({"status": "ready"})

    @blueprint.get("/metrics")
    def metrics() -> Response:
        problems = catalog.problems()
        counts = {name: len(problems.get(name, ())) for name in catalog.names()}
        body, content_type = telemetry.exposition(counts)
        return Response(body, content_type=content_type)

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return Response(_OPENAPI.read_bytes(), content_type=JSON)

    return blueprint


def _readiness(catalog: Catalog) -> Response:
    """Return 200 if every configured model is ready, else 503 with the reasons."""
    state: dict[str, object] = {
        "default_model": catalog.default_name(),
        "models": {model.name: _described(model) for model in catalog.models()},
    }
    problems = catalog.problems()
    if problems:
        state["problems"] = problems
    missing = catalog.not_ready()
    if not missing:
        return json_response({"status": "ready", **state})
    text = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return json_response({"error": text, **state, "not_ready": missing}, 503)


def _described(model: ServedModel) -> dict[str, object]:
    """Return what a client needs to build a request: version, inputs, image format."""
    _, signature = main_signature(model.signatures)
    described: dict[str, object] = {
        "version": str(model.version),
        "inputs": row_tensors(signature.inputs) if model.has_tensors else [],
    }
    if signature.limit_reason:
        described["batching"] = signature.batching_note()
    if model.user_code is not None and model.user_code.service.has_example:
        described["example"] = model.user_code.example_json()
    image = model.config.image
    if image is not None:
        described["image"] = {"size": image.size, "mode": image.mode}
    return described
