"""The Open Inference Protocol over HTTP: all routes under /v2 except infer.

What changes the server requires an admin key: app/api/access checks it. The traffic
split is Basket's own addition.
"""

from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, request

from app.access.rights import Rights
from app.codec import json_text
from app.codec.compression import decompress
from app.codec.v2.infer_options import flag, parameters_of
from app.errors import BadInput, UnknownModel
from app.protocols.describe import Description, no_repository
from app.web.body import read_body
from app.web.request_headers import request_headers
from app.web.responses import json_response

# Of a body when it is unpacked; what is read here has a few names.
_MAX_UNPACKED_BYTES = 1 << 20


def v2_blueprints(
    describe: Description, rights: Rights, max_body_bytes: int
) -> list[Blueprint]:
    """Return all routes under /v2 except infer."""
    return [
        _health_blueprint(describe, rights),
        _metadata_blueprint(describe),
        _repository_blueprint(describe, max_body_bytes),
    ]


def _health_blueprint(describe: Description, rights: Rights) -> Blueprint:
    """Return the routes of liveness and readiness, of the server and of models.

    To a stranger a model that does not exist is one that is not ready.
    """
    blueprint = Blueprint("v2_health", __name__)

    @blueprint.get("/v2/health/live")
    def live() -> Response:
        return _health("live", describe.is_live())

    @blueprint.get("/v2/health/ready")
    def ready() -> Response:
        return _health("ready", describe.is_ready())

    @blueprint.get("/v2/models/<model>/ready")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/ready")
    def model_ready(model: str, version: int | None = None) -> Response:
        try:
            is_ready = describe.is_model_ready(model, version)
        except UnknownModel:
            if rights.is_client(request_headers()):
                raise
            is_ready = False
        return _health("ready", is_ready, name=model)

    return blueprint


def _health(state: str, holds: bool, **about: str) -> Response:
    status = HTTPStatus.OK if holds else HTTPStatus.SERVICE_UNAVAILABLE
    return json_response({**about, state: holds}, status)


def _metadata_blueprint(describe: Description) -> Blueprint:
    """Return the routes of metadata, configuration and statistics."""
    blueprint = Blueprint("v2_metadata", __name__)

    @blueprint.get("/v2", strict_slashes=False)
    def server() -> Response:
        return json_response(describe.server())

    @blueprint.get("/v2/models")
    def models() -> Response:
        return json_response({"models": describe.model_names()})

    @blueprint.get("/v2/models/<model>")
    @blueprint.get("/v2/models/<model>/versions/<version:version>")
    def metadata(model: str, version: int | None = None) -> Response:
        return json_response(describe.metadata(model, version))

    @blueprint.get("/v2/models/<model>/config")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/config")
    def config(model: str, version: int | None = None) -> Response:
        return json_response(describe.config(model, version))

    @blueprint.get("/v2/models/stats")
    @blueprint.get("/v2/models/<model>/stats")
    @blueprint.get("/v2/models/<model>/versions/<version:version>/stats")
    def stats(model: str | None = None, version: int | None = None) -> Response:
        return json_response(describe.statistics(model, version))

    return blueprint


def _repository_blueprint(describe: Description, max_body_bytes: int) -> Blueprint:
    """Return the routes index, load, unload and traffic."""
    blueprint = Blueprint("v2_repository", __name__)

    def body(*, is_required: bool = False) -> dict[str, Any]:
        return _json_body(max_body_bytes, is_required=is_required)

    @blueprint.post("/v2/repository/index")
    def index() -> Response:
        only_ready = flag(body(), "ready", "the body", default=False)
        return json_response(describe.index(only_ready=only_ready))

    @blueprint.post("/v2/repository/models/<model>/load")
    def load(model: str) -> Response:
        describe.load(model, parameters_of(body(), "the body"))
        return json_response({"name": model, "load": True})

    @blueprint.post("/v2/repository/models/<model>/unload")
    def unload(model: str) -> Response:
        parameters_of(body(), "the body")
        describe.unload(model)
        return json_response({"name": model, "unload": True})

    @blueprint.post("/v2/repository/models/<model>/traffic")
    def traffic(model: str) -> Response:
        weights = body(is_required=True)
        describe.set_traffic(model, weights)
        return json_response({"name": model, "traffic": weights})

    @blueprint.post("/v2/repository/<repository>/index")
    @blueprint.post("/v2/repository/<repository>/models/<model>/load")
    @blueprint.post("/v2/repository/<repository>/models/<model>/unload")
    def of_repository(repository: str, model: str = "") -> Response:
        del model
        raise no_repository(repository)

    return blueprint


def _json_body(max_body_bytes: int, *, is_required: bool) -> dict[str, Any]:
    """Return the body's JSON object, empty if there is no body and none is required."""
    sent = read_body(request.environ, max_body_bytes)
    encoding = request.headers.get("Content-Encoding", "")
    body = decompress(sent, encoding, min(max_body_bytes, _MAX_UNPACKED_BYTES))
    if not body.strip() and not is_required:
        return {}
    with json_text.opened_whole(body) as value:
        if not isinstance(value, dict):
            raise BadInput("the body: expected nothing or a JSON object")
        return value
