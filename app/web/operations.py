"""Routes for operators: liveness, readiness, metrics and the API description."""

import json
from pathlib import Path
from typing import Any

from flask import Flask, Response, request

from app import telemetry
from app.access.rights import Rights
from app.call import JSON
from app.engines.base import main_signature
from app.repository.catalog import Catalog
from app.repository.health import Health
from app.repository.served import ServedModel
from app.web.described import example_body, own_example, row_tensors
from app.web.gauges import current
from app.web.head import head
from app.web.page import page
from app.web.page.observed import Observed

_OPENAPI = Path(__file__).with_name("openapi.json")
# Routes that take the same JSON.
_WITH_EXAMPLES = ("/predict", "/stream_predict", "/v1/models/{model}:predict")
# Of a model's example in /readyz, which probes read each second.
_READY_EXAMPLE_BYTES = 1 << 10


def add_operations_routes(
    app: Flask, catalog: Catalog, health: Health, rights: Rights, observed: Observed
) -> None:
    """Add /healthz, /readyz, /metrics, /openapi.json, and /.

    The last is the page for a browser, and /healthz for others, as in KServe. Health
    names no models to a stranger.
    """

    @app.get("/")
    def root() -> Response:
        is_page = page.is_asked_for()
        response = app.make_response(page.index() if is_page else healthz())
        response.vary.add("Accept")
        return response

    @app.get("/healthz")
    def healthz() -> Any:
        stuck = health.stuck()
        if not stuck:
            return {"status": "alive"}
        text = "no progress while requests wait"
        if rights.is_client(head().headers):
            text += f": {', '.join(stuck)}"
        return {"error": text}, 503

    @app.get("/readyz")
    def readyz() -> Any:
        is_ready, state, error = catalog.is_ready(), {}, "not ready"
        if rights.is_client(head().headers):
            state, missing = _state(catalog), catalog.not_ready()
            error = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        if is_ready:
            return {"status": "ready", **state}
        return {"error": error, **state}, 503

    @app.get("/metrics")
    def metrics() -> Response:
        accept = request.headers.get("Accept", "")
        body, kind = telemetry.exposition(current(catalog, observed), accept)
        return Response(body, content_type=kind)

    @app.get("/openapi.json")
    def openapi() -> Any:
        return _description(catalog)


def _description(catalog: Catalog) -> dict[str, Any]:
    """Return the file beside this module, with an example of each served model.

    The pages of such descriptions show the first one: of the default model, or of one
    that has an example, so that the model and the body belong together.
    """
    description: dict[str, Any] = json.loads(_OPENAPI.read_bytes())
    bodies = {model.name: example_body(model) for model in catalog.models()}
    if not bodies:
        return description
    default = catalog.default_name()
    names = sorted(bodies, key=lambda name: (bodies[name] is None, name != default))
    parameters = description["components"]["parameters"]
    for parameter in ("ModelName", "Model"):
        parameters[parameter]["examples"] = {name: {"value": name} for name in names}
    examples = {
        name: {"value": bodies[name]} for name in names if bodies[name] is not None
    }
    for path in _WITH_EXAMPLES:
        body = description["paths"][path]["post"]["requestBody"]
        body["content"][JSON]["examples"] = examples
    return description


def _state(catalog: Catalog) -> dict[str, object]:
    """Return what each model takes, and what is wrong with it."""
    state: dict[str, object] = {
        "default_model": catalog.default_name(),
        "models": {model.name: _described(model) for model in catalog.models()},
    }
    if problems := catalog.problems():
        state["problems"] = problems
    if missing := catalog.not_ready():
        state["not_ready"] = missing
    return state


def _described(model: ServedModel) -> dict[str, object]:
    """Return what a client needs to build a request: version, inputs, image format."""
    _, signature = main_signature(model.signatures)
    described: dict[str, object] = {
        "version": str(model.version),
        "inputs": row_tensors(model, signature.inputs),
    }
    if signature.limit_reason:
        described["batching"] = signature.batching_note()
    if (example := own_example(model, _READY_EXAMPLE_BYTES)) is not None:
        described["example"] = example
    if (image := model.config.image) is not None:
        described["image"] = {"size": image.size, "mode": image.mode}
    return described
