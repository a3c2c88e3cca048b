"""Routes for operators: liveness, readiness, metrics and the API description."""

import json
from collections.abc import Sequence
from pathlib import Path

from flask import Blueprint, Response, request

from app import telemetry
from app.access.rights import Rights
from app.call import JSON
from app.engines.base import main_signature
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.served import ServedModel
from app.web.described import example_body, own_example, row_tensors
from app.web.gauges import current
from app.web.page import page
from app.web.page.observed import Observed
from app.web.request_headers import request_headers
from app.web.responses import json_response

_OPENAPI = Path(__file__).with_name("openapi.json")
# Routes that take the same JSON.
_WITH_EXAMPLES = ("/predict", "/stream_predict", "/v1/models/{model}:predict")
# Of a model's example in /readyz, which probes read each second.
_READY_EXAMPLE_BYTES = 1 << 10


def operations_blueprint(
    catalog: Catalog, health: Health, rights: Rights, observed: Observed
) -> Blueprint:
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
        if rights.is_client(request_headers()):
            return _readiness(catalog)
        if catalog.is_ready():
            return json_response({"status": "ready"})
        return json_response({"error": "not ready"}, 503)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        accept = request.headers.get("Accept", "")
        body, kind = telemetry.exposition(current(catalog, observed), accept)
        return Response(body, content_type=kind)

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return _description(catalog)

    return blueprint


def _description(catalog: Catalog) -> Response:
    """Return the description, with an example of each served model.

    The pages of such descriptions show the first one: of the default model, or of one
    that has an example, so that the model and the body belong together.
    """
    bodies = {model.name: example_body(model) for model in catalog.models()}
    default = catalog.default_name()
    names = sorted(bodies, key=lambda name: (bodies[name] is None, name != default))
    bodies = {name: bodies[name] for name in names}
    text = _OPENAPI.read_bytes()
    if not bodies:
        return Response(text, content_type=JSON)
    description = json.loads(text)
    parameters = description["components"]["parameters"]
    for name in ("ModelName", "Model"):
        parameters[name]["examples"] = {each: {"value": each} for each in bodies}
    examples = {
        name: {"value": value} for name, value in bodies.items() if value is not None
    }
    for path in _WITH_EXAMPLES:
        body = description["paths"][path]["post"]["requestBody"]
        body["content"][JSON]["examples"] = examples
    return json_response(description)


def _liveness(stuck: Sequence[str], rights: Rights) -> Response:
    """Return 200 if no model is stuck, else 503, with their names for a client."""
    if not stuck:
        return json_response({"status": "alive"})
    text = "no progress while requests wait"
    if rights.is_client(request_headers()):
        text += f": {', '.join(stuck)}"
    return json_response({"error": text}, 503)


def _readiness(catalog: Catalog) -> Response:
    """Return 200 if the server is ready, else 503; with what each model lacks."""
    state: dict[str, object] = {
        "default_model": catalog.default_name(),
        "models": {model.name: _described(model) for model in catalog.models()},
    }
    problems = catalog.problems()
    if problems:
        state["problems"] = problems
    missing = catalog.not_ready()
    if missing:
        state["not_ready"] = missing
    if catalog.is_ready():
        return json_response({"status": "ready", **state})
    text = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    return json_response({"error": text, **state}, 503)


def _described(model: ServedModel) -> dict[str, object]:
    """Return what a client needs to build a request: version, inputs, image format."""
    _, signature = main_signature(model.signatures)
    described: dict[str, object] = {
        "version": str(model.version),
        "inputs": row_tensors(signature.inputs) if model.has_tensors else [],
    }
    if signature.limit_reason:
        described["batching"] = signature.batching_note()
    example = own_example(model, _READY_EXAMPLE_BYTES)
    if example is not None:
        described["example"] = example
    image = model.config.image
    if image is not None:
        described["image"] = {"size": image.size, "mode": image.mode}
    return described
