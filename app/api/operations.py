"""For those who run it: is it alive, is it ready, how is it doing."""

from flask import Blueprint, Response

from app import telemetry
from app.api.responses import json_response
from app.serving.catalog import Catalog


def operations_blueprint(catalog: Catalog) -> Blueprint:
    """/healthz, /readyz and /metrics."""
    blueprint = Blueprint("operations", __name__)

    @blueprint.get("/healthz")
    def healthz() -> Response:
        return json_response({"status": "alive"})

    @blueprint.get("/readyz")
    def readyz() -> Response:
        ready = {model.name: model.version for model in catalog.models()}
        missing = catalog.missing()
        if not missing:
            return json_response({"status": "ready", "models": ready})
        text = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        answer = {"error": text, "models": ready, "not_ready": missing}
        return json_response(answer, 503)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        body, content_type = telemetry.exposition()
        return Response(body, content_type=content_type)

    return blueprint
