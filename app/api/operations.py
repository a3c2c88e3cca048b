"""Routes for operators: liveness, readiness, metrics and the API description."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, request

from app import telemetry
from app.api.access.rights import Rights
from app.api.described import row_tensors
from app.api.exchange import JSON
from app.api.page import page
from app.api.responses import json_response
from app.engines.base import main_signature
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.served import ServedModel

_OPENAPI = Path(__file__).with_name("openapi.json")


def operations_blueprint(catalog: Catalog, health: Health, rights: Rights) -> Blueprint:
    """Return /healthz, /readyz, /metrics, /openapi.json, and /.

    The last is the page for a browser, and /healthz for others, as in KServe. Health
    names no models to a stranger. /openapi.json answers with the file beside this
    module, and examples of the models.
    """
    blueprint = Blueprint("operations", __name__)

    @blueprint.get("/")
    def root() -> Response:
        response = page.index() if page.is_asked_for() else healthz()
        response.vary.add("Accept")
        return response

    @blueprint.get("/healthz")
    def healthz() -> Response:
        return _liveness(health.stuck(), rights)

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
        return _description(catalog)

    return blueprint


def _description(catalog: Catalog) -> Response:
    """Return the description, with the EXAMPLE of each model that has one."""
    examples = {}
    for model in catalog.models():
        example = _example(model)
        if example is not None:
            examples[model.name] = {"value": {"instances": [example]}}
    text = _OPENAPI.read_bytes()
    if not examples:
        return Response(text, content_type=JSON)
    description = json.loads(text)
    body = description["paths"]["/predict"]["post"]["requestBody"]
    body["content"][JSON]["examples"] = examples
    return json_response(description)


def _example(model: ServedModel) -> Any:
    """Return EXAMPLE of a model's service.py; None: it has none that JSON can hold."""
    code = model.user_code
    if code is None or not code.service.has_example:
        return None
    return code.example_json()


def _liveness(stuck: Sequence[str], rights: Rights) -> Response:
    """Return 200 if no model is stuck, else 503, with their names for a client."""
    if not stuck:
        return json_response({"status": "alive"})
    text = "no progress while requests wait"
    if rights.is_client(request.environ):
        text += f": {', '.join(stuck)}"
    return json_response({"error": text}, 503)


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
    example = _example(model)
    if example is not None:
        described["example"] = example
    image = model.config.image
    if image is not None:
        described["image"] = {"size": image.size, "mode": image.mode}
    return described
